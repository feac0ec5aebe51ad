// SPDX-License-Identifier: MIT

package unet

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// sockaddr is an address in the kernel's form; the first n bytes count.
type sockaddr struct {
	b [128]byte
	n int
}

// Lengths of the kernel's addresses.
const (
	lenInet4 = 16
	lenInet6 = 28
)

func (s *sockaddr) family() int {
	if s.n < 2 {
		return syscall.AF_UNSPEC
	}
	return int(binary.NativeEndian.Uint16(s.b[:]))
}

func (s *sockaddr) port() int { return int(binary.BigEndian.Uint16(s.b[2:])) }

// addrPort returns an address of the Internet, with the zone as its number.
func (s *sockaddr) addrPort() netip.AddrPort {
	port := uint16(s.port())
	switch family := s.family(); {
	case family == syscall.AF_INET && s.n >= lenInet4:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s.b[4:8])), port)
	case family == syscall.AF_INET6 && s.n >= lenInet6:
		a := netip.AddrFrom16([16]byte(s.b[8:24]))
		if id := s.zone(); id != 0 {
			a = a.WithZone(zoneName(id))
		}
		return netip.AddrPortFrom(a, port)
	}
	return netip.AddrPort{}
}

func (s *sockaddr) zone() int { return int(binary.NativeEndian.Uint32(s.b[24:])) }

// unixName returns the name of an address of the Unix family as package net
// shows it: up to a NUL, with @ for the one that begins an abstract name or
// stands for none.
func (s *sockaddr) unixName() string {
	name := s.b[2:max(2, min(s.n, len(s.b)))]
	if len(name) == 0 || name[0] == 0 {
		if len(name) > 0 {
			name = name[1:]
		}
		return "@" + untilNUL(name)
	}
	return untilNUL(name)
}

func untilNUL(p []byte) string {
	if i := bytes.IndexByte(p, 0); i >= 0 {
		p = p[:i]
	}
	return string(p)
}

// addr returns the address in package net's form for a network of one of its
// names, nil for none.
func (s *sockaddr) addr(network string) net.Addr {
	switch network {
	case "unix", "unixgram", "unixpacket":
		if s.family() != syscall.AF_UNIX {
			return nil
		}
		return &net.UnixAddr{Name: s.unixName(), Net: network}
	}
	ap := s.addrPort()
	if !ap.IsValid() {
		return nil
	}
	ip, zone := net.IP(ap.Addr().AsSlice()), ap.Addr().Zone()
	if network[0] == 'u' {
		return &net.UDPAddr{IP: ip, Port: int(ap.Port()), Zone: zone}
	}
	return &net.TCPAddr{IP: ip, Port: int(ap.Port()), Zone: zone}
}

// localAddr asks for the address of a socket.
func localAddr(fd int, network string) net.Addr {
	var s sockaddr
	n, errno := sys.SockName(fd, s.b[:], false)
	if errno != 0 {
		return nil
	}
	s.n = n
	return s.addr(network)
}

// zoneNames keeps the names of interfaces, which take a walk through the kernel
// to find.
var zoneNames sync.Map

// zoneName returns the name of an interface, which is how package net shows
// zones.
func zoneName(index int) string {
	if name, ok := zoneNames.Load(index); ok {
		return name.(string)
	}
	ifi, err := net.InterfaceByIndex(index)
	if err != nil {
		return strconv.Itoa(index)
	}
	zoneNames.Store(index, ifi.Name)
	return ifi.Name
}
