// SPDX-License-Identifier: MIT

package unet

import (
	"go/version"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// UnixConn is a Unix connection with the methods of net.UnixConn: a byte stream ("unix")
// or a sequence of messages ("unixpacket"). All methods may be called concurrently.
type UnixConn struct{ conn }

func (s *System) newUnixConn(fd int, network string, local, remote net.Addr) (*UnixConn, error) {
	c := &UnixConn{conn{network: network, local: local, remote: remote}}
	c.moreLikely.Store(true) // one read never joins data sent with descriptors and other data
	if err := c.open(s, fd); err != nil {
		return nil, err
	}
	closeDropped(c, &c.sock)
	return c, nil
}

// Close closes the connection. Waiting calls return an error that wraps net.ErrClosed,
// and Close returns after them.
func (c *UnixConn) Close() error { return c.conn.Close() }

// CloseRead closes the reading side: reads return the data that has arrived, and then
// io.EOF.
func (c *UnixConn) CloseRead() error { return c.shutdown(syscall.SHUT_RD) }

// CloseWrite closes the writing side: the peer reads the data that was written, and then
// io.EOF.
func (c *UnixConn) CloseWrite() error { return c.shutdown(syscall.SHUT_WR) }

// ReadFrom reads like Read and also returns the sender's address, nil if the peer has no
// name. At the end of the stream the error is io.EOF, which Go before 1.27 wraps.
func (c *UnixConn) ReadFrom(p []byte) (int, net.Addr, error) {
	n, addr, err := c.ReadFromUnix(p)
	if addr == nil {
		return n, nil, err
	}
	return n, addr, err
}

// ReadFromUnix is ReadFrom with a concrete type.
func (c *UnixConn) ReadFromUnix(p []byte) (int, *net.UnixAddr, error) {
	n, _, _, addr, err := c.readMsg(p, nil, "recvfrom")
	return n, addr, err
}

// ReadMsgUnix reads data into p and control data, such as descriptors from the peer, into
// oob. At the end of the stream the error is io.EOF, which Go before 1.27 wraps.
func (c *UnixConn) ReadMsgUnix(p, oob []byte) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	return c.readMsg(p, oob, "recvmsg")
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

// WriteMsgUnix writes data and control data, such as descriptors. addr must be nil. On a
// stream it may write only a part of the data.
func (c *UnixConn) WriteMsgUnix(p, oob []byte, addr *net.UnixAddr) (n, oobn int, err error) {
	var to sockaddr
	switch {
	case addr != nil && addr.Net != c.network:
		err = syscall.EAFNOSUPPORT
	case addr != nil:
		err = os.NewSyscallError("sendmsg", to.setUnix(addr.Name)) // nil for nil
	}
	data := p
	if len(p) == 0 && len(oob) > 0 {
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

// bareEOF reports whether package net, in the Go release that the program is built with, does not
// wrap the io.EOF of readMsg.
var bareEOF = version.Compare(strings.TrimPrefix(runtime.Version(), "devel "), "go1.27") >= 0

// readMsg receives data with control data.
func (c *UnixConn) readMsg(p, oob []byte, call string) (n, oobn, flags int, addr *net.UnixAddr, err error) {
	if len(p) == 0 && len(oob) > 0 {
		p = make([]byte, 1) // control data comes with at least one byte
	}
	n, oobn, flags, from, err := c.receiveOne(p, oob, sys.MsgCmsgCloexec, call)
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err == io.EOF && bareEOF {
		return 0, 0, 0, nil, err
	}
	if err != nil {
		return 0, 0, 0, nil, c.opError("read", err)
	}
	if name := from.sender(); name != "" {
		addr = &net.UnixAddr{Name: name, Net: c.network}
	}
	return n, oobn, flags, addr, nil
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
