// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// datagrams is what sockets for datagrams of all families share.
type datagrams struct {
	conn
	family int
}

// Read reads one datagram and drops what is longer than p.
func (c *datagrams) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		return 0, c.opError("read", err)
	}
	return n, nil
}

// readBatch receives into packets; name writes down who sent one.
func (c *datagrams) readBatch(packets []Packet, name func(p *Packet, from *sockaddr)) (int, error) {
	n := min(len(packets), batchSize)
	if n == 0 {
		return 0, nil
	}
	b := batches.Get().(*batch)
	defer b.release(n)
	for i := range n {
		b.room(i, packets[i].Data, nil)
	}
	got, err := c.receiveBatch(b, n, 0, "recvmmsg")
	if err != nil {
		return 0, c.opError("read", err)
	}
	for i := range got {
		p := &packets[i]
		p.N, p.Truncated = b.msgs[i].Len(), b.msgs[i].Flags()&sys.MsgTrunc != 0
		name(p, &b.names[i])
	}
	return got, nil
}

// writeBatch sends packets; name writes down whom to.
func (c *datagrams) writeBatch(packets []Packet, name func(p *Packet, to *sockaddr) error) (done int, err error) {
	b := batches.Get().(*batch)
	defer b.release(batchSize)
	for done < len(packets) && err == nil {
		n := 0
		for n < min(len(packets)-done, batchSize) && err == nil {
			p := &packets[done+n]
			if err = name(p, &b.names[n]); err == nil {
				b.load(n, p.Data, nil)
				n++
			}
		}
		sent, sendErr := c.sendBatch(b, n, "sendmmsg")
		done += sent
		if sendErr != nil {
			err = sendErr
		}
	}
	if err != nil {
		err = c.opError("write", err)
	}
	return done, err
}

var (
	errMissingAddress = errors.New("missing address") // as package net has it
	errConnected      = net.ErrWriteToConnected
)

// takePacketConn makes a socket for datagrams of package net's one of the
// system's.
func (s *System) takePacketConn(c net.PacketConn, network string) (net.PacketConn, error) {
	if s.mode == ModeNet {
		return c, nil
	}
	d, err := s.takeDatagrams(c, network)
	if err != nil {
		return nil, err
	}
	if d == nil {
		return c, nil
	}
	return d, nil
}

// datagramConn is what both kinds of sockets for datagrams are.
type datagramConn interface {
	net.Conn
	BatchConn
}

// takeDatagrams makes a socket of package net's one of the system's, nil when
// it is of another kind. On an error the socket is closed.
func (s *System) takeDatagrams(old any, network string) (datagramConn, error) {
	switch old := old.(type) {
	case *net.UDPConn:
		c := &UDPConn{datagrams{conn: conn{network: network}}}
		if err := c.takeOver(s, old); err != nil {
			return nil, err
		}
		closeDropped(c)
		return c, nil
	case *net.UnixConn:
		c := &UnixgramConn{datagrams{conn: conn{network: network}}}
		if err := c.takeOver(s, old); err != nil {
			return nil, err
		}
		closeDropped(c)
		return c, nil
	}
	return nil, nil
}

func (c *datagrams) takeOver(s *System, old interface {
	net.Conn
	syscall.Conn
}) error {
	c.local, c.remote = old.LocalAddr(), old.RemoteAddr()
	fd, err := takeFD(old)
	if err == nil {
		c.family = familyOf(fd)
		c.wary.Store(true) // a short datagram says nothing of the next
		err = c.open(s, fd)
	}
	if err != nil {
		return &net.OpError{Op: "listen", Net: c.network, Addr: c.local, Err: err}
	}
	return nil
}

// familyOf returns the address family of a socket.
func familyOf(fd int) int {
	var s sockaddr
	n, errno := sys.SockName(fd, s.b[:], false)
	if errno != 0 {
		return syscall.AF_UNSPEC
	}
	s.n = n
	return s.family()
}

// Close closes the socket. Calls that wait return with an error that wraps
// net.ErrClosed, and Close returns when all have.
func (c *UDPConn) Close() error {
	runtime.SetFinalizer(c, nil)
	return c.conn.Close()
}

// Close closes the socket; its file stays, as with package net. Calls that wait
// return with an error that wraps net.ErrClosed, and Close returns when all
// have.
func (c *UnixgramConn) Close() error {
	runtime.SetFinalizer(c, nil)
	return c.conn.Close()
}
