// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
	"runtime"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// datagrams is what sockets for datagrams of all families share.
type datagrams struct {
	conn
	family int
}

// batchSize is how many datagrams one call moves at most.
const batchSize = 32

// batch is the argument of calls with several datagrams.
type batch struct {
	msgs  [batchSize]sys.SockMsg
	parts [batchSize]sys.SockPart
	names [batchSize]sockaddr
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// release takes a batch of which n messages were used back: it must not keep
// their buffers.
func (b *batch) release(n int) {
	clear(b.msgs[:n])
	clear(b.parts[:n])
	batches.Put(b)
}

// room prepares message i to receive.
func (b *batch) room(i int, p, control []byte) {
	name := &b.names[i]
	name.n = len(name.b)
	b.msgs[i].Set(name.b[:], &b.parts[i], p, control)
}

// load prepares message i to be sent to the address in names.
func (b *batch) load(i int, p, control []byte) {
	name := &b.names[i]
	b.msgs[i].Set(name.b[:name.n], &b.parts[i], p, control)
}

// Read reads one datagram and drops what is longer than p.
func (c *datagrams) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		return 0, c.opError("read", err)
	}
	return n, nil
}

// receive waits for datagrams and returns how many of the first n messages were
// filled.
func (c *datagrams) receive(b *batch, n, flags int) (got int, err error) {
	var errno syscall.Errno
	err = c.whenReady(&c.rd, func(fd int) bool {
		for {
			got, errno = sys.SockRecvMany(fd, b.msgs[:n], sys.MsgDontWait|flags)
			if errno != syscall.EINTR {
				break
			}
		}
		for i := range got {
			b.names[i].n = b.msgs[i].NameLen()
		}
		return errno != syscall.EAGAIN
	})
	if err == nil {
		err = callError("recvmmsg", errno)
	}
	return got, err
}

// transmit sends the first n messages and returns how many were sent.
func (c *datagrams) transmit(b *batch, n int) (sent int, err error) {
	var errno syscall.Errno
	err = c.whenReady(&c.wr, func(fd int) bool {
		for sent < n {
			var k int
			k, errno = sys.SockSendMany(fd, b.msgs[sent:n], sys.MsgDontWait)
			sent += k
			switch errno {
			case syscall.EAGAIN:
				return false
			case 0, syscall.EINTR:
			default:
				return true
			}
		}
		return true
	})
	if err == nil && sent < n {
		err = callError("sendmmsg", errno)
	}
	return sent, err
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
	got, err := c.receive(b, n, 0)
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
		sent, sendErr := c.transmit(b, n)
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

// readFrom receives one datagram with its control data.
func (c *datagrams) readFrom(p, control []byte, flags int) (n, controlLen, msgFlags int, from sockaddr, err error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.room(0, p, control)
	if _, err := c.receive(b, 1, flags); err != nil {
		return 0, 0, 0, from, err
	}
	m := &b.msgs[0]
	return m.Len(), m.ControlLen(), m.Flags(), b.names[0], nil
}

// writeTo sends one datagram with control data.
func (c *datagrams) writeTo(p, control []byte, to *sockaddr) (int, error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.names[0] = *to
	b.load(0, p, control)
	if _, err := c.transmit(b, 1); err != nil {
		return 0, err
	}
	return b.msgs[0].Len(), nil
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
