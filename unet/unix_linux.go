// SPDX-License-Identifier: MIT

package unet

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// UnixConn is a Unix connection, of a stream ("unix") or of messages in order
// ("unixpacket"), with the methods of net.UnixConn. All of them may be called
// concurrently.
type UnixConn struct{ conn }

func (s *System) newUnixConn(fd int, network string, local, remote net.Addr) (*UnixConn, error) {
	c := &UnixConn{conn{network: network, local: local, remote: remote}}
	c.moreLikely.Store(true) // what one call sent with descriptors is never joined with the rest
	if err := c.open(s, fd); err != nil {
		return nil, err
	}
	closeDropped(c, &c.sock)
	return c, nil
}

// Close closes the connection. Calls that wait return an error that wraps
// net.ErrClosed; Close returns after the last of them.
func (c *UnixConn) Close() error { return c.conn.Close() }

// CloseRead closes the reading side: reads return data that has arrived, then io.EOF.
func (c *UnixConn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite closes the writing side: the peer reads the data that was written, then
// io.EOF.
func (c *UnixConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

// ReadFrom is Read that also returns the sender, nil if the peer has no name. At the
// end of the stream the error wraps io.EOF.
func (c *UnixConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, addr, err := c.ReadFromUnix(p)
	if addr == nil {
		return n, nil, err
	}
	return n, addr, err
}

// ReadFromUnix is ReadFrom with the concrete type.
func (c *UnixConn) ReadFromUnix(p []byte) (int, *net.UnixAddr, error) {
	n, _, _, addr, err := readUnix(&c.conn, p, nil, "recvfrom")
	return n, addr, err
}

// ReadMsgUnix reads data into p and control data, such as descriptors of the peer,
// into oob. At the end of the stream the error wraps io.EOF.
func (c *UnixConn) ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	return readUnix(&c.conn, p, oob, "recvmsg")
}

// WriteTo fails, as on net.UnixConn: a connection sends only to its peer.
func (c *UnixConn) WriteTo(p []byte, addr net.Addr) (int, error) {
	to, ok := addr.(*net.UnixAddr)
	if !ok {
		return 0, c.writeError(addr, syscall.EINVAL)
	}
	return c.WriteToUnix(p, to)
}

// WriteToUnix fails; see WriteTo.
func (c *UnixConn) WriteToUnix(_ []byte, addr *net.UnixAddr) (int, error) {
	return 0, c.writeError(unixAddr(addr), errConnected)
}

// WriteMsgUnix writes data and control data, such as descriptors; addr must be nil.
// On a stream it may write only a part of the data.
func (c *UnixConn) WriteMsgUnix(p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error) {
	return writeUnix(&c.conn, p, oob, addr)
}

// readUnix receives one message of a Unix socket.
func readUnix(c *conn, p, oob []byte, call string) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	stream := c.network != "unixgram"
	if len(p) == 0 && len(oob) > 0 && stream {
		p = make([]byte, 1) // control data comes with at least one byte
	}
	var from sockaddr
	if call == "recvfrom" {
		n, err = c.recvFrom(p, &from, call)
	} else {
		n, oobn, flags, from, err = c.receiveOne(p, oob, sys.MsgCmsgCloexec, call)
	}
	if err == nil && n == 0 && stream {
		err = io.EOF
	}
	if err != nil {
		return 0, 0, 0, nil, c.opError("read", err)
	}
	if name := from.sender(); name != "" {
		addr = &net.UnixAddr{Name: name, Net: c.network}
	}
	return n, oobn, flags, addr, nil
}

// writeUnix sends one message on a Unix socket.
func writeUnix(c *conn, p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error) {
	var to sockaddr
	switch {
	case c.network == "unixgram" && c.remote != nil && addr != nil:
		err = errConnected
	case addr != nil && addr.Net != c.network:
		err = syscall.EAFNOSUPPORT
	case addr != nil:
		err = to.setUnix(addr.Name)
	}
	data := p
	if len(p) == 0 && len(oob) > 0 && c.network != "unixgram" {
		data = make([]byte, 1) // control data needs at least one byte
	}
	if err == nil {
		n, err = c.sendOne(data, oob, &to, "sendmsg")
	}
	if err != nil {
		return 0, 0, c.writeError(unixAddr(addr), err)
	}
	return min(n, len(p)), len(oob), nil
}

// writeError wraps an error of a call with a destination.
func (c *conn) writeError(to net.Addr, err error) error {
	return &net.OpError{Op: "write", Net: c.network, Source: c.local, Addr: to, Err: err}
}

// unixAddr returns addr as an interface, nil for a nil pointer.
func unixAddr(addr *net.UnixAddr) net.Addr {
	if addr == nil {
		return nil
	}
	return addr
}

// UnixgramConn is a Unix socket for datagrams, and a [BatchConn]. All methods may be
// called concurrently.
type UnixgramConn struct{ datagrams }

// Close closes the socket and leaves its file, as package net does. Calls that wait
// return an error that wraps net.ErrClosed; Close returns after the last of them.
func (c *UnixgramConn) Close() error { return c.conn.Close() }

// CloseRead closes the reading side: reads return data that has arrived, then io.EOF.
func (c *UnixgramConn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite closes the writing side: the peer reads the data that was written, then
// io.EOF.
func (c *UnixgramConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

// ReadFrom receives one datagram and drops the part that does not fit into p. The
// address is nil if the sender has no name.
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

// ReadMsgUnix receives one datagram into p and control data, such as descriptors of
// the sender, into oob.
func (c *UnixgramConn) ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	return readUnix(&c.conn, p, oob, "recvmsg")
}

// WriteMsgUnix sends one datagram with control data; addr must be nil on a connected
// socket.
func (c *UnixgramConn) WriteMsgUnix(p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error) {
	return writeUnix(&c.conn, p, oob, addr)
}

// sender returns the name of a sender, "" if it has none.
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

var errNoSegments = errors.New("the kernel cuts datagrams of UDP only: leave Segment 0")

// setName stores the destination of a datagram; "" is the peer of a connected
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

// setUnix stores the name of a Unix socket: a path, which ends with a NUL, or an
// abstract name, which begins with an @ and does not.
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
	return c.writeBatch(packets, func(p *Packet, to *sockaddr) error {
		if p.Segment > 0 {
			return errNoSegments
		}
		return c.setName(to, p.Name)
	})
}
