// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/internal/sys"
)

// maxUnixPath is the longest name of a Unix socket, with the NUL that ends it or that begins an
// abstract name.
const maxUnixPath = 108

// Sockaddr is a socket address in the kernel's form (struct sockaddr_storage
// with its length). The zero value holds none; [Sockaddr.Reset] makes room for
// one to be received, which the builders of accept do themselves.
type Sockaddr struct {
	b [128]byte
	n uint32 // length in bytes; in and out of the kernel
}

// NewSockaddr returns the address of an IP endpoint. A zone must be a number.
func NewSockaddr(ap netip.AddrPort) (*Sockaddr, error) {
	family, zone := sys.FamilyIPv6, uint64(0)
	switch addr := ap.Addr(); {
	case addr.Is4():
		family = sys.FamilyIPv4
	case !addr.IsValid():
		return nil, errors.New("uring: invalid IP address")
	case addr.Zone() != "":
		var err error
		if zone, err = strconv.ParseUint(addr.Zone(), 10, 32); err != nil {
			return nil, fmt.Errorf("uring: zone %q is not an interface index", addr.Zone())
		}
	}
	s := &Sockaddr{}
	s.n = uint32(sys.PutAddrPort(s.b[:], family, ap, uint32(zone)))
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
	binary.NativeEndian.PutUint16(s.b[:], sys.FamilyUnix)
	copy(s.b[2:], path)
	if path != "" && path[0] == '@' {
		s.b[2] = 0
	}
	return s, nil
}

// Family returns the address family, 0 for none.
func (s *Sockaddr) Family() int { return int(binary.NativeEndian.Uint16(s.b[:])) }

// Len returns the length in bytes.
func (s *Sockaddr) Len() int { return int(s.n) }

// Reset makes s room for an address to be received.
func (s *Sockaddr) Reset() { *s = Sockaddr{n: uint32(len(s.b))} }

// AddrPort returns the IP endpoint, invalid when s holds something else.
func (s *Sockaddr) AddrPort() netip.AddrPort {
	ap, zone := sys.AddrPort(s.b[:min(int(s.n), len(s.b))])
	if zone != 0 {
		ap = netip.AddrPortFrom(ap.Addr().WithZone(strconv.FormatUint(uint64(zone), 10)), ap.Port())
	}
	return ap
}

// UnixPath returns the path of a Unix socket, with @ for the abstract
// namespace, "" when s holds something else or has no name.
func (s *Sockaddr) UnixPath() string {
	if s.Family() != sys.FamilyUnix || s.n <= 2 {
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
