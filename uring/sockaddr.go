// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Address families of Linux, and the lengths of their addresses.
const (
	familyUnix = 1
	familyIPv4 = 2
	familyIPv6 = 10

	lenIPv4     = 16
	lenIPv6     = 28
	maxUnixPath = 108 // with the NUL that ends it, or that begins an abstract name
)

// Sockaddr is a socket address in the kernel's form (struct sockaddr_storage
// with its length). The zero value holds none; [Sockaddr.Reset] makes room for
// one to be received, which the builders of accept do themselves.
type Sockaddr struct {
	b [128]byte
	n uint32 // length in bytes; in and out of the kernel
}

// NewSockaddr returns the address of an IP endpoint. A zone must be a number.
func NewSockaddr(ap netip.AddrPort) (*Sockaddr, error) {
	s := &Sockaddr{}
	addr := ap.Addr()
	binary.BigEndian.PutUint16(s.b[2:], ap.Port())
	switch {
	case addr.Is4():
		s.setFamily(familyIPv4)
		a := addr.As4()
		copy(s.b[4:], a[:])
		s.n = lenIPv4
	case addr.Is6():
		s.setFamily(familyIPv6)
		a := addr.As16()
		copy(s.b[8:], a[:])
		s.n = lenIPv6
		if zone := addr.Zone(); zone != "" {
			id, err := strconv.ParseUint(zone, 10, 32)
			if err != nil {
				return nil, fmt.Errorf("uring: zone %q is not an interface index", zone)
			}
			binary.NativeEndian.PutUint32(s.b[24:], uint32(id))
		}
	default:
		return nil, errors.New("uring: invalid IP address")
	}
	return s, nil
}

// NewUnixSockaddr returns the address of a Unix socket: a path of at most 107
// bytes and no NUL or, with a leading @ or NUL as in package net, a name in the
// abstract namespace, of at most 107 bytes after that. "" is the address of a
// socket without a name, which as a source binds to a name that the kernel
// picks.
func NewUnixSockaddr(path string) (*Sockaddr, error) {
	n := len(path)
	if path != "" && path[0] != '@' && path[0] != 0 {
		if strings.IndexByte(path, 0) >= 0 {
			return nil, errors.New("uring: path of a Unix socket contains a NUL byte")
		}
		n++ // the NUL
	}
	if n > maxUnixPath {
		return nil, errors.New("uring: path of a Unix socket is longer than 107 bytes")
	}
	s := &Sockaddr{n: uint32(2 + n)}
	s.setFamily(familyUnix)
	copy(s.b[2:], path)
	if path != "" && path[0] == '@' {
		s.b[2] = 0
	}
	return s, nil
}

func (s *Sockaddr) setFamily(f uint16) { binary.NativeEndian.PutUint16(s.b[:], f) }

// Family returns the address family, 0 for none.
func (s *Sockaddr) Family() int { return int(binary.NativeEndian.Uint16(s.b[:])) }

// Len returns the length in bytes.
func (s *Sockaddr) Len() int { return int(s.n) }

// Reset makes s room for an address to be received.
func (s *Sockaddr) Reset() { *s = Sockaddr{n: uint32(len(s.b))} }

// AddrPort returns the IP endpoint, invalid when s holds something else.
func (s *Sockaddr) AddrPort() netip.AddrPort {
	port := binary.BigEndian.Uint16(s.b[2:])
	switch family := s.Family(); {
	case family == familyIPv4 && s.n >= lenIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.b[4:8])), port)
	case family == familyIPv6 && s.n >= lenIPv6:
		a := netip.AddrFrom16([16]byte(s.b[8:24]))
		if id := binary.NativeEndian.Uint32(s.b[24:]); id != 0 {
			a = a.WithZone(strconv.FormatUint(uint64(id), 10))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

// UnixPath returns the path of a Unix socket, with @ for the abstract
// namespace, "" when s holds something else or has no name.
func (s *Sockaddr) UnixPath() string {
	if s.Family() != familyUnix || s.n <= 2 {
		return ""
	}
	name := s.b[2:min(int(s.n), len(s.b))]
	if name[0] == 0 {
		return "@" + string(name[1:])
	}
	for i, c := range name {
		if c == 0 {
			return string(name[:i])
		}
	}
	return string(name)
}
