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
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// sockaddr is an address in the kernel's form; the first n bytes count.
type sockaddr struct {
	b [128]byte
	n int
}

func (s *sockaddr) family() int {
	if s.n < 2 {
		return syscall.AF_UNSPEC
	}
	return int(binary.NativeEndian.Uint16(s.b[:]))
}

// addrPort returns an IPv4 or IPv6 address and its port.
func (s *sockaddr) addrPort() netip.AddrPort {
	ap, zone := sys.AddrPort(s.b[:s.n])
	if zone != 0 {
		ap = netip.AddrPortFrom(ap.Addr().WithZone(zones.name(int(zone))), ap.Port())
	}
	return ap
}

// unixName returns the name of a Unix socket as package net writes it: up to the
// first NUL, with an @ for the NUL that begins an abstract name. A socket without a
// name is "@".
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

// addr returns the address as package net's type for the network, nil if there is
// none.
func (s *sockaddr) addr(network string) net.Addr {
	switch network {
	case "unix", "unixpacket":
		if s.family() != syscall.AF_UNIX {
			return nil
		}
		return &net.UnixAddr{Name: s.unixName(), Net: network}
	}
	ap := s.addrPort()
	if !ap.IsValid() {
		return nil
	}
	return new(tcpAddr).set(ap)
}

// tcpAddr is an address together with the bytes of its IP.
type tcpAddr struct {
	net.TCPAddr
	ip [16]byte
}

func (a *tcpAddr) set(ap netip.AddrPort) net.Addr {
	a.TCPAddr = net.TCPAddr{IP: ipBytes(ap.Addr(), &a.ip), Port: int(ap.Port()), Zone: ap.Addr().Zone()}
	return &a.TCPAddr
}

// tcpAddrs returns the addresses of a TCP socket, in one allocation. accept4 has
// returned the peer's.
func tcpAddrs(fd int, peer *sockaddr) (local, remote net.Addr) {
	var name sockaddr
	both := new([2]tcpAddr)
	if n, errno := sys.SockName(fd, name.b[:], false); errno == 0 {
		name.n = n
		if ap := name.addrPort(); ap.IsValid() {
			local = both[0].set(ap)
		}
	}
	if ap := peer.addrPort(); ap.IsValid() {
		remote = both[1].set(ap)
	}
	return local, remote
}

// set stores an address in the form of a family.
func (s *sockaddr) set(family int, addr netip.AddrPort) error {
	ip := addr.Addr()
	s.n = sys.PutAddrPort(s.b[:], family, addr, uint32(zones.index(ip.Zone())))
	if s.n == 0 {
		return &net.AddrError{Err: "non-IPv4 address", Addr: ip.Unmap().String()}
	}
	return nil
}

// ipBytes stores the bytes of an address in room and returns them.
func ipBytes(a netip.Addr, room *[16]byte) net.IP {
	if a.Is4() {
		b := a.As4()
		return room[:copy(room[:4], b[:]):4]
	}
	*room = a.As16()
	return room[:]
}

// localAddr returns the address of a socket, nil if it has none.
func localAddr(fd int, network string) net.Addr {
	var s sockaddr
	n, errno := sys.SockName(fd, s.b[:], false)
	if errno != 0 {
		return nil
	}
	s.n = n
	return s.addr(network)
}

// zones holds the names and numbers of the network interfaces, which are the zones
// of IPv6 addresses. It is read from the kernel again after a minute, and at once
// for an unknown name or number, as in package net.
var zones zoneCache

type zoneCache struct {
	mu      sync.RWMutex
	read    time.Time
	numbers map[string]int
	names   map[int]string
}

const zoneLifetime = time.Minute

// name returns the name of an interface, or its number where it has none.
func (z *zoneCache) name(number int) (name string) {
	if !z.find(func() (ok bool) { name, ok = z.names[number]; return ok }) {
		return strconv.Itoa(number)
	}
	return name
}

// index returns the number of an interface by its name, which may be a number
// itself; 0 when there is none.
func (z *zoneCache) index(name string) (number int) {
	if name != "" && !z.find(func() (ok bool) { number, ok = z.numbers[name]; return ok }) {
		number, _ = strconv.Atoi(name) // 0 means none
	}
	return number
}

// find calls get, and once more after a refresh if get finds nothing.
func (z *zoneCache) find(get func() bool) bool {
	fresh := z.refresh(zoneLifetime)
	z.mu.RLock()
	ok := get()
	z.mu.RUnlock()
	if ok || fresh || !z.refresh(0) {
		return ok
	}
	z.mu.RLock()
	defer z.mu.RUnlock()
	return get()
}

// refresh reads the interfaces from the kernel unless that was done within the
// lifetime, and reports whether it did.
func (z *zoneCache) refresh(lifetime time.Duration) bool {
	z.mu.Lock()
	defer z.mu.Unlock()
	now := time.Now()
	if now.Before(z.read.Add(lifetime)) {
		return false
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return false
	}
	z.read, z.numbers, z.names = now, make(map[string]int), make(map[int]string)
	for _, i := range interfaces {
		z.numbers[i.Name], z.names[i.Index] = i.Index, i.Name
	}
	return true
}

// setUnix stores the name of a Unix socket: a path, which ends with a NUL, or an
// abstract name, which begins with an @ or a NUL and does not. "" is no name.
func (s *sockaddr) setUnix(name string) error {
	const longest = 108
	abstract := name != "" && (name[0] == '@' || name[0] == 0)
	n := len(name)
	if name != "" && !abstract {
		n++
	}
	if n > longest {
		return syscall.EINVAL
	}
	*s = sockaddr{n: 2 + n}
	binary.NativeEndian.PutUint16(s.b[:], syscall.AF_UNIX)
	copy(s.b[2:], name)
	if abstract {
		s.b[2] = 0
	}
	return nil
}

// sender returns the name of a sender, "" if it has none.
func (s *sockaddr) sender() string {
	if s.n <= 2 {
		return ""
	}
	return s.unixName()
}

// same reports whether two addresses are equal.
func (s *sockaddr) same(t *sockaddr) bool {
	return s.n == t.n && string(s.b[:s.n]) == string(t.b[:t.n])
}
