// SPDX-License-Identifier: MIT

package unet

import (
	"encoding/binary"
	"net"
	"syscall"
)

// UnixgramConn is a socket of the Unix family for datagrams, and a [BatchConn].
// All methods may be called concurrently.
type UnixgramConn struct{ datagrams }

// CloseRead ends the reading side: reads return what has arrived, then io.EOF.
func (c *UnixgramConn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite ends the writing side: the peer reads what was written, then
// io.EOF.
func (c *UnixgramConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

// ReadFrom receives one datagram and drops what is longer than p. The address
// is nil when the sender has no name.
func (c *UnixgramConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, addr, err := c.ReadFromUnix(p)
	if addr == nil {
		return n, nil, err
	}
	return n, addr, err
}

// ReadFromUnix is ReadFrom with the concrete type.
func (c *UnixgramConn) ReadFromUnix(p []byte) (int, *net.UnixAddr, error) {
	n, _, _, addr, err := readUnix(&c.conn, p, nil, "recvfrom")
	return n, addr, err
}

// ReadMsgUnix receives one datagram into p and control data, such as
// descriptors of the sender, into oob.
func (c *UnixgramConn) ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	return readUnix(&c.conn, p, oob, "recvmsg")
}

// WriteMsgUnix sends one datagram with control data; addr is nil on a connected
// socket.
func (c *UnixgramConn) WriteMsgUnix(p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error) {
	return writeUnix(&c.conn, p, oob, addr)
}

// sender returns the name of a sender, "" for one without.
func (s *sockaddr) sender() string {
	if s.n <= 2 {
		return ""
	}
	return s.unixName()
}

// WriteTo sends one datagram.
func (c *UnixgramConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UnixAddr)
	if !ok {
		return 0, c.writeError(addr, syscall.EINVAL)
	}
	return c.WriteToUnix(p, to)
}

// WriteToUnix is WriteTo with the concrete type.
func (c *UnixgramConn) WriteToUnix(p []byte, addr *net.UnixAddr) (int, error) {
	switch {
	case c.remote != nil:
		return 0, c.writeError(unixAddr(addr), errConnected)
	case addr == nil:
		return 0, c.writeError(nil, errMissingAddress)
	case addr.Net != c.network:
		return 0, c.writeError(addr, syscall.EAFNOSUPPORT)
	}
	var to sockaddr
	if err := c.setName(&to, addr.Name); err != nil {
		return 0, c.writeError(addr, err)
	}
	n, err := c.sendTo(p, &to, "sendto")
	if err != nil {
		return 0, c.writeError(addr, err)
	}
	return n, nil
}

// setName writes down whom a datagram goes to, "" being the peer of a connected
// socket.
func (c *UnixgramConn) setName(to *sockaddr, name string) error {
	switch {
	case c.remote != nil && name != "":
		return errConnected
	case c.remote != nil:
		to.n = 0
		return nil
	case name == "":
		return errMissingAddress
	}
	return to.setUnix(name)
}

// setUnix fills in the name of a socket of the Unix family: a path, which ends
// with a NUL, or with @ an abstract name, which does not.
func (s *sockaddr) setUnix(name string) error {
	const longest = 108
	end := 1
	if name[0] == '@' {
		end = 0
	}
	if len(name)+end > longest {
		return syscall.EINVAL
	}
	*s = sockaddr{n: 2 + len(name) + end}
	binary.NativeEndian.PutUint16(s.b[:], syscall.AF_UNIX)
	copy(s.b[2:], name)
	if end == 0 {
		s.b[2] = 0
	}
	return nil
}

// ReadBatch receives datagrams; see [BatchConn].
func (c *UnixgramConn) ReadBatch(packets []Packet) (int, error) {
	return c.readBatch(packets, func(p *Packet, from *sockaddr) { p.Name = from.sender() })
}

// WriteBatch sends datagrams; see [BatchConn].
func (c *UnixgramConn) WriteBatch(packets []Packet) (int, error) {
	return c.writeBatch(packets, func(p *Packet, to *sockaddr) error { return c.setName(to, p.Name) })
}
