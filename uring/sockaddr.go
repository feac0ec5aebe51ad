// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Address families of Linux.
const (
	familyUnix = 1
	familyIPv4 = 2
	familyIPv6 = 10
)

// Sockaddr is a socket address in the kernel's form (struct sockaddr_storage
// with its length). The zero value is room for an address to be received.
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
		s.n = 16
	case addr.Is6():
		s.setFamily(familyIPv6)
		a := addr.As16()
		copy(s.b[8:], a[:])
		s.n = 28
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

// NewUnixSockaddr returns the address of a Unix socket. A leading @ or NUL
// means the abstract namespace, as in package net. At most 107 bytes.
func NewUnixSockaddr(path string) (*Sockaddr, error) {
	s := &Sockaddr{}
	s.setFamily(familyUnix)
	if len(path) > 107 {
		return nil, errors.New("uring: path of a Unix socket is longer than 107 bytes")
	}
	copy(s.b[2:], path)
	s.n = uint32(2 + len(path))
	switch {
	case path == "":
	case path[0] == '@' || path[0] == 0:
		s.b[2] = 0
	default:
		s.n++ // the NUL
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
	switch s.Family() {
	case familyIPv4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.b[4:8])), port)
	case familyIPv6:
		a := netip.AddrFrom16([16]byte(s.b[8:24]))
		if id := binary.NativeEndian.Uint32(s.b[24:]); id != 0 {
			a = a.WithZone(strconv.Itoa(int(id)))
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
