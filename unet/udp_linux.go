// SPDX-License-Identifier: MIT

package unet

import (
	"encoding/binary"
	"net"
	"net/netip"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// UDPConn is a UDP socket with the methods of net.UDPConn, and those of
// [BatchConn]. All of them may be called concurrently.
type UDPConn struct{ datagrams }

// Close closes the socket. Calls that wait return an error that wraps net.ErrClosed;
// Close returns after the last of them.
func (c *UDPConn) Close() error { return c.conn.Close() }

// ReadFrom receives one datagram and drops the part that does not fit into p.
func (c *UDPConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, addr, err := c.ReadFromUDP(p)
	if addr == nil {
		return n, nil, err
	}
	return n, addr, err
}

// ReadFromUDP is ReadFrom with the concrete type.
func (c *UDPConn) ReadFromUDP(p []byte) (int, *net.UDPAddr, error) {
	n, addr, err := c.ReadFromUDPAddrPort(p)
	if !addr.IsValid() {
		return n, nil, err
	}
	return n, net.UDPAddrFromAddrPort(addr), err
}

// ReadFromUDPAddrPort is ReadFrom without allocating.
func (c *UDPConn) ReadFromUDPAddrPort(p []byte) (int, netip.AddrPort, error) {
	var from sockaddr
	n, err := c.recvFrom(p, &from, "recvfrom")
	if err != nil {
		return 0, netip.AddrPort{}, c.opError("read", err)
	}
	return n, from.addrPort(), nil
}

// ReadMsgUDP receives one datagram into p and its control data into oob.
func (c *UDPConn) ReadMsgUDP(p, oob []byte) (n, oobn, flags int, addr *net.UDPAddr, err error) {
	n, oobn, flags, from, err := c.ReadMsgUDPAddrPort(p, oob)
	if from.IsValid() {
		addr = net.UDPAddrFromAddrPort(from)
	}
	return n, oobn, flags, addr, err
}

// ReadMsgUDPAddrPort is ReadMsgUDP without allocating.
func (c *UDPConn) ReadMsgUDPAddrPort(p, oob []byte) (n, oobn, flags int, addr netip.AddrPort, err error) {
	n, oobn, flags, from, err := c.receiveOne(p, oob, 0, "recvmsg")
	if err != nil {
		return 0, 0, 0, addr, c.opError("read", err)
	}
	return n, oobn, flags, from.addrPort(), nil
}

// WriteTo sends one datagram.
func (c *UDPConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UDPAddr)
	if !ok {
		return 0, c.writeError(addr, syscall.EINVAL)
	}
	return c.WriteToUDP(p, to)
}

// WriteToUDP is WriteTo with the concrete type.
func (c *UDPConn) WriteToUDP(p []byte, addr *net.UDPAddr) (int, error) {
	switch {
	case c.remote != nil:
		return 0, c.writeError(udpAddr(addr), errConnected)
	case addr == nil:
		return 0, c.writeError(nil, errMissingAddress)
	}
	return c.writeMsg(p, nil, addr, "sendto")
}

// WriteToUDPAddrPort is WriteTo without allocating.
func (c *UDPConn) WriteToUDPAddrPort(p []byte, addr netip.AddrPort) (int, error) {
	if c.remote != nil {
		return 0, c.writeError(portAddr(addr), errConnected)
	}
	return c.writeMsgAddrPort(p, nil, addr, "sendto")
}

// WriteMsgUDP sends one datagram with control data; addr must be nil on a connected
// socket.
func (c *UDPConn) WriteMsgUDP(p, oob []byte, addr *net.UDPAddr) (n, oobn int, err error) {
	if n, err = c.writeMsg(p, oob, addr, "sendmsg"); err != nil {
		return n, 0, err
	}
	return n, len(oob), nil
}

// WriteMsgUDPAddrPort is WriteMsgUDP without allocating; addr must be the zero value
// on a connected socket.
func (c *UDPConn) WriteMsgUDPAddrPort(p, oob []byte, addr netip.AddrPort) (n, oobn int, err error) {
	if n, err = c.writeMsgAddrPort(p, oob, addr, "sendmsg"); err != nil {
		return n, 0, err
	}
	return n, len(oob), nil
}

func (c *UDPConn) writeMsg(p, oob []byte, addr *net.UDPAddr, call string) (int, error) {
	if addr == nil {
		return c.writeMsgAddrPort(p, oob, netip.AddrPort{}, call)
	}
	ip, ok := netip.AddrFromSlice(addr.IP)
	if len(addr.IP) == 0 {
		ip, ok = netip.IPv4Unspecified(), true
		if c.family == syscall.AF_INET6 {
			ip = netip.IPv6Unspecified()
		}
	}
	if !ok {
		return 0, c.writeError(addr, &net.AddrError{Err: "invalid address", Addr: addr.IP.String()})
	}
	var to sockaddr
	err := c.setName(&to, netip.AddrPortFrom(ip.WithZone(addr.Zone), uint16(addr.Port)))
	if err == nil && addr.Port != int(uint16(addr.Port)) {
		err = callError(call, syscall.EINVAL)
	}
	n := 0
	if err == nil {
		n, err = c.sendMsg(p, oob, &to, call)
	}
	if err != nil {
		return n, c.writeError(addr, err)
	}
	return n, nil
}

func (c *UDPConn) writeMsgAddrPort(p, oob []byte, addr netip.AddrPort, call string) (int, error) {
	var to sockaddr
	if err := c.setName(&to, addr); err != nil {
		return 0, c.writeError(portAddr(addr), err)
	}
	n, err := c.sendMsg(p, oob, &to, call)
	if err != nil {
		return n, c.writeError(portAddr(addr), err)
	}
	return n, nil
}

func (c *UDPConn) sendMsg(p, oob []byte, to *sockaddr, call string) (int, error) {
	if len(oob) == 0 {
		return c.sendTo(p, to, call)
	}
	return c.sendOne(p, oob, to, call)
}

// udpAddr returns addr as an interface, nil for a nil pointer.
func udpAddr(addr *net.UDPAddr) net.Addr {
	if addr == nil {
		return nil
	}
	return addr
}

// portAddr returns addr as an interface, nil for the zero value.
func portAddr(addr netip.AddrPort) net.Addr {
	if !addr.IsValid() {
		return nil
	}
	return net.UDPAddrFromAddrPort(addr)
}

// setName stores the destination of a datagram in the form of the socket's family.
func (c *UDPConn) setName(to *sockaddr, addr netip.AddrPort) error {
	switch {
	case c.remote != nil && addr.IsValid():
		return errConnected
	case c.remote != nil:
		to.n = 0
		return nil
	case !addr.IsValid():
		return errMissingAddress
	}
	return to.set(c.family, addr)
}

// set stores an address in the form of a family.
func (s *sockaddr) set(family int, addr netip.AddrPort) error {
	ip := addr.Addr()
	binary.NativeEndian.PutUint16(s.b[:], uint16(family))
	binary.BigEndian.PutUint16(s.b[2:], addr.Port())
	if family == syscall.AF_INET {
		if ip = ip.Unmap(); !ip.Is4() {
			return &net.AddrError{Err: "non-IPv4 address", Addr: ip.String()}
		}
		a := ip.As4()
		copy(s.b[4:], a[:])
		clear(s.b[8:lenInet4])
		s.n = lenInet4
		return nil
	}
	a := ip.As16()
	clear(s.b[4:8])
	copy(s.b[8:], a[:])
	binary.NativeEndian.PutUint32(s.b[24:], uint32(zones.index(ip.Zone())))
	s.n = lenInet6
	return nil
}

// ReadBatch receives datagrams; see [BatchConn].
func (c *UDPConn) ReadBatch(packets []Packet) (int, error) {
	return c.readBatch(packets, func(p *Packet, from *sockaddr) {
		p.Addr, p.Name = from.addrPort(), ""
	})
}

// WriteBatch sends datagrams; see [BatchConn].
func (c *UDPConn) WriteBatch(packets []Packet) (int, error) {
	return c.writeBatch(packets, func(p *Packet, to *sockaddr) error { return c.setName(to, p.Addr) })
}

// SetGRO sets whether the kernel may join datagrams of one sender that have the same
// size and pass them as one (UDP_GRO, Linux 5.0), which costs much less for each of
// them. It joins up to 64 of them and 65 535 bytes; a buffer must have room for that, or
// what does not fit is lost. The last may be shorter. ReadBatch stores the size in
// [Packet].Segment, and ReadMsgUDP in its control data, from which [SegmentSize] takes it.
// The other methods do not tell the size. It is off at first.
func (c *UDPConn) SetGRO(on bool) error {
	err := c.setInt(syscall.IPPROTO_UDP, sys.UDPGRO, number(on))
	if err == nil {
		c.gro.Store(on)
	}
	return err
}

// SegmentControl returns control data for [UDPConn.WriteMsgUDP]: the kernel cuts the
// data into datagrams of size bytes, of which the last may be shorter (UDP_SEGMENT).
// Other control data may follow it. Where the device cannot do that, WriteMsgUDP fails
// with EIO; WriteBatch sends them one by one.
func SegmentControl(size int) []byte {
	return sys.SegmentControl(make([]byte, sys.SegmentControlSize), size)
}

// SegmentSize returns the size of the datagrams that the kernel has joined (see
// [UDPConn.SetGRO]), from the control data of [UDPConn.ReadMsgUDP]; 0 means that it is
// one datagram.
func SegmentSize(oob []byte) int { return sys.SegmentSize(oob) }
