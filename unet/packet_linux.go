// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
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

// datagramConn is what both kinds of sockets for datagrams are.
type datagramConn interface {
	net.Conn
	BatchConn
}

// takePacketConn makes a socket for datagrams of package net's one of the
// system's. What the system does not know it leaves as it is.
func (s *System) takePacketConn(old net.PacketConn, network string) (net.PacketConn, error) {
	if s.mode == ModeNet {
		return old, nil
	}
	var c net.PacketConn
	var err error
	switch o := old.(type) {
	case *net.UDPConn:
		c, err = s.takeDatagrams(o, network)
	case *net.UnixConn:
		c, err = s.takeDatagrams(o, network)
	default:
		return old, nil
	}
	if err == nil {
		return c, nil
	}
	if err := s.refused(old, err); err != nil {
		return nil, &net.OpError{Op: "listen", Net: network, Addr: old.LocalAddr(), Err: err}
	}
	return old, nil
}

// takeDatagrams makes a socket for datagrams of package net's one of the
// system's. On an error the socket is as it was.
func (s *System) takeDatagrams(old interface {
	net.Conn
	syscall.Conn
}, network string) (datagramConn, error) {
	var c datagramConn
	var d *datagrams
	var err error
	if _, ok := old.(*net.UDPConn); ok {
		u := &UDPConn{datagrams{conn: conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}}
		u.datagram = true
		c, d, err = u, &u.datagrams, take(s, old, u, &u.sock)
	} else {
		u := &UnixgramConn{datagrams{conn: conn{network: network, local: old.LocalAddr(), remote: old.RemoteAddr()}}}
		u.datagram = true
		c, d, err = u, &u.datagrams, take(s, old, u, &u.sock)
	}
	if err != nil {
		return nil, err
	}
	d.wary.Store(true) // a short datagram says nothing of the next
	d.family = familyOf(d.fd.Int())
	return c, nil
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
func (c *UDPConn) Close() error { return c.conn.Close() }

// Close closes the socket; its file stays, as with package net. Calls that wait
// return with an error that wraps net.ErrClosed, and Close returns when all
// have.
func (c *UnixgramConn) Close() error { return c.conn.Close() }
