// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// netAddr converts an address of a stream socket from the kernel's form.
func netAddr(fd int, name []byte) net.Addr {
	if len(name) >= 2 && binary.NativeEndian.Uint16(name) == syscall.AF_UNIX {
		path := append(name[2:], 0)
		if path[0] == 0 { // abstract, or no name: package net writes an @
			path = append([]byte{'@'}, append(path[1:], 0)...)
		}
		path, _, _ = bytes.Cut(path, []byte{0})
		return &net.UnixAddr{Name: string(path), Net: "unix"}
	}
	if p := peerFrom(fd, name); p.Addr.IsValid() {
		return net.TCPAddrFromAddrPort(p.Addr)
	}
	return nil
}

// name stores a peer's address in b in the kernel's form, and returns the part used.
func (s *loopSocket) name(b []byte, to Peer) ([]byte, error) {
	if s.c.network == "unixgram" {
		return unixName(b, to.Name)
	}
	ip := to.Addr.Addr()
	if !ip.IsValid() {
		return nil, errNoPeer
	}
	n := sys.PutAddrPort(b, s.family, to.Addr, zoneIndex(s.fd, ip.Zone()))
	if n == 0 {
		return nil, &net.AddrError{Err: "non-IPv4 address", Addr: ip.Unmap().String()}
	}
	return b[:n], nil
}

// unixName stores the name of a Unix socket. An abstract name begins with a NUL, for which an @
// stands, and does not end with one.
func unixName(b []byte, name string) ([]byte, error) {
	const most = 108 // the kernel's limit, with the NUL after a path
	if name == "" {
		return nil, errNoPeer
	}
	abstract := name[0] == '@' || name[0] == 0
	if len(name) > most || len(name) == most && !abstract {
		return nil, os.NewSyscallError("sendto", syscall.EINVAL)
	}
	binary.NativeEndian.PutUint16(b, syscall.AF_UNIX)
	n := 2 + copy(b[2:], name)
	if abstract {
		b[2] = 0
		return b[:n], nil
	}
	b[n] = 0
	return b[:n+1], nil
}

// peerFrom returns the peer of an address in the kernel's form, as a socket sees it.
func peerFrom(fd int, name []byte) Peer {
	if len(name) < 2 {
		return Peer{}
	}
	if binary.NativeEndian.Uint16(name) == syscall.AF_UNIX && len(name) > 2 {
		abstract := name[2] == 0
		path, _, _ := bytes.Cut(name[2:], []byte{0})
		if abstract {
			path = append([]byte{'@'}, name[3:]...)
		}
		return Peer{Name: string(path)}
	}
	addr, zone := sys.AddrPort(name)
	if zone != 0 {
		addr = netip.AddrPortFrom(addr.Addr().WithZone(zoneName(fd, zone)), addr.Port())
	}
	return Peer{Addr: addr}
}

// zoneName returns the name of an interface, or its number if it has none. Names and numbers
// change, so the kernel is asked each time.
func zoneName(fd int, id uint32) string {
	if name, err := sys.InterfaceName(fd, id); err == nil {
		return name
	}
	return strconv.Itoa(int(id))
}

// zoneIndex returns the number of an interface by its name, which may be a number itself; 0 if
// there is none.
func zoneIndex(fd int, zone string) uint32 {
	if zone == "" {
		return 0
	}
	if id, err := sys.InterfaceIndex(fd, zone); err == nil {
		return id
	}
	id, _ := strconv.ParseUint(zone, 10, 32)
	return uint32(id)
}

// addrs implements backend.
func (l *loop) addrs(c *Conn) *addrs {
	a := new(addrs)
	for i := range a {
		var name [maxSockaddr]byte
		n, errno := 0, syscall.EBADF
		if c.bstate.fd >= 0 {
			n, errno = sys.SockName(c.bstate.fd, name[:], i == remoteAddr)
		}
		if errno == 0 {
			a[i] = netAddr(c.bstate.fd, name[:n])
		}
	}
	return a
}
