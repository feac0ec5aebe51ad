// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// datagrams is the part that sockets for datagrams of both families have in common.
type datagrams struct {
	conn
	family int         // of a UDP socket
	gso    bool        // UDP: the kernel cuts messages into datagrams
	gro    atomic.Bool // the kernel may join datagrams
	noJoin atomic.Bool // the device or the path does not take segments
}

// Read receives one datagram and drops the part that does not fit into p.
func (c *datagrams) Read(p []byte) (int, error) {
	n, err := c.read(p)
	if err != nil {
		return 0, c.opError("read", err)
	}
	return n, nil
}

// readBatch receives into packets; name stores the sender of one.
func (c *datagrams) readBatch(packets []Packet, name func(p *Packet, from *sockaddr)) (int, error) {
	n := min(len(packets), batchSize)
	if n == 0 {
		return 0, nil
	}
	b := batches.Get().(*batch)
	defer b.release(n)
	gro := c.gro.Load()
	for i := range n {
		var control []byte
		if gro {
			control = b.controls[i][:]
		}
		b.room(i, packets[i].Data, control)
	}
	got, err := c.receiveBatch(b, n, 0, "recvmmsg")
	if err != nil {
		return 0, c.opError("read", err)
	}
	for i := range got {
		p := &packets[i]
		p.N, p.Segment, p.Truncated = b.msgs[i].Len(), 0, b.msgs[i].Flags()&sys.MsgTrunc != 0
		if gro {
			p.Segment = joined(b.controls[i][:b.msgs[i].ControlLen()], p.N)
		}
		name(p, &b.names[i])
	}
	return got, nil
}

// writeBatch sends packets; name stores the destination of one.
func (c *datagrams) writeBatch(packets []Packet, name func(p *Packet, to *sockaddr) error) (done int, err error) {
	b := batches.Get().(*batch)
	defer b.release(batchSize)
	for done < len(packets) && err == nil {
		n, packed, nameErr := b.pack(packets[done:], name, c.gso && !c.noJoin.Load())
		sent, sendErr := c.sendBatch(b, n, "sendmmsg")
		before := done
		for i := range sent {
			done += b.msgs[i].Parts()
		}
		if sendErr != nil && sent < n && b.segmented(sent) && noSegments(sendErr) {
			k := b.msgs[sent].Parts()
			sendErr = c.sendEach(packets[done:done+k], b.names[sent], &done)
		}
		switch {
		case sendErr != nil:
			err = sendErr
		case done == before+packed:
			err = nameErr
		}
	}
	if err != nil {
		err = c.opError("write", err)
	}
	return done, err
}

// pack makes messages of the first packets and returns how many it made, of how many
// packets, and why it could not make another. With join it makes one message of
// successive packets of one size that have one destination, which the kernel cuts again:
// that costs less than a message for each.
func (b *batch) pack(packets []Packet, name func(p *Packet, to *sockaddr) error, join bool) (n, packed int, err error) {
	size, bytes := 0, 0 // of the datagrams of the last message, and all of them; size 0 ends it
	for packed < min(len(packets), batchSize) {
		p, to := &packets[packed], &b.names[n]
		if err := name(p, to); err != nil {
			return n, packed, err
		}
		fits := size > 0 && len(p.Data) > 0 && len(p.Data) <= size && bytes+len(p.Data) <= maxJoined && p.Segment <= 0
		if fits && to.same(&b.names[n-1]) {
			b.msgs[n-1].Extend(&b.parts[packed], p.Data)
			b.msgs[n-1].SetControl(sys.SegmentControl(b.controls[n-1][:], size))
			if bytes += len(p.Data); len(p.Data) < size {
				size = 0 // only the last may be shorter
			}
		} else {
			b.msgs[n].Set(to.b[:to.n], &b.parts[packed], p.Data, b.segmentControl(n, p))
			if size, bytes = 0, len(p.Data); join && p.Segment <= 0 && len(p.Data) <= maxJoinedSize {
				size = len(p.Data)
			}
			n++
		}
		packed++
	}
	return n, packed, nil
}

// maxJoined limits the bytes of a message that the kernel cuts, maxJoinedSize the
// datagrams: larger ones may not fit into a packet, for which the kernel cuts none.
const (
	maxJoined     = 65_000
	maxJoinedSize = 1400
)

// same reports whether two addresses are equal.
func (s *sockaddr) same(t *sockaddr) bool {
	return s.n == t.n && string(s.b[:s.n]) == string(t.b[:t.n])
}

// segmented reports whether the kernel shall cut message i.
func (b *batch) segmented(i int) bool { return b.msgs[i].ControlLen() > 0 }

// noSegments reports whether an error may mean that the kernel does not take these
// segments: EIO is that of a device that does not compute checksums (before Linux 6.11),
// EINVAL that of too many or too large ones, EMSGSIZE that of too many bytes.
func noSegments(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EMSGSIZE)
}

// sendEach sends the datagrams of packets to one address one by one and counts the
// packets in done. If they were joined, the socket joins none from then on.
func (c *datagrams) sendEach(packets []Packet, to sockaddr, done *int) error {
	if len(packets) > 1 {
		c.noJoin.Store(true)
	}
	for i := range packets {
		for q := range packets[i].segments {
			if _, err := c.sendTo(q.Data, &to, "sendmmsg"); err != nil {
				return err
			}
		}
		*done++
	}
	return nil
}

// segmentControl returns the control data for the segments of message i, nil if it is
// one datagram.
func (b *batch) segmentControl(i int, p *Packet) []byte {
	if p.Segment <= 0 || p.Segment >= len(p.Data) {
		return nil
	}
	return sys.SegmentControl(b.controls[i][:], p.Segment)
}

// joined returns the size of the datagrams in a message of n bytes, 0 if it is one.
func joined(control []byte, n int) int {
	if size := sys.SegmentSize(control); size < n {
		return size
	}
	return 0
}

var (
	errMissingAddress = errors.New("missing address") // the words of package net
	errConnected      = net.ErrWriteToConnected
)

// keepsBoundaries prepares a socket for datagrams before it is opened.
func (c *datagrams) keepsBoundaries() {
	c.datagram = true
	c.moreLikely.Store(true) // more datagrams may follow a short one
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

// batchSize limits the datagrams of one system call.
const batchSize = 32

// batch is the argument of system calls with several datagrams.
type batch struct {
	msgs  [batchSize]sys.SockMsg
	parts [batchSize]sys.SockPart
	names [batchSize]sockaddr
	// controls is room for the control data of segments.
	controls [batchSize][sys.SegmentControlSize]byte
}

var batches = sync.Pool{New: func() any { return new(batch) }}

// release returns a batch, of which n messages were used, to the pool. A pooled
// batch must not keep buffers alive.
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

// receiveBatch waits for messages and returns how many of the first n it received.
func (c *conn) receiveBatch(b *batch, n, flags int, call string) (got int, err error) {
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
		err = callError(call, errno)
	}
	return got, err
}

// sendBatch sends the first n messages and returns how many were sent.
func (c *conn) sendBatch(b *batch, n int, call string) (sent int, err error) {
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
		err = callError(call, errno)
	}
	return sent, err
}

// receiveOne receives one message with its control data.
func (c *conn) receiveOne(p, control []byte, flags int, call string) (n, controlLen, msgFlags int, from sockaddr, err error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.room(0, p, control)
	if _, err := c.receiveBatch(b, 1, flags, call); err != nil {
		return 0, 0, 0, from, err
	}
	m := &b.msgs[0]
	return m.Len(), m.ControlLen(), m.Flags(), b.names[0], nil
}

// recvFrom receives one datagram and the address of its sender.
func (c *conn) recvFrom(p []byte, from *sockaddr, call string) (int, error) {
	h := &c.rd
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	for {
		if err := c.check(h); err != nil {
			return 0, err
		}
		h.ready.Store(false)
		n, addrLen, errno := sys.SockRecvFrom(c.fd.Int(), p, from.b[:], 0)
		switch errno {
		case syscall.EAGAIN:
			if _, err := c.wait(h, nil); err != nil {
				return 0, err
			}
		case syscall.EINTR:
		default:
			h.ready.Store(true) // more datagrams may be there
			if errno == 0 {
				from.n = addrLen
				sys.RaceWrite(p[:n])
			}
			return n, callError(call, errno)
		}
	}
}

// sendTo sends one datagram to an address, or to the peer of a connected socket
// when to is empty.
func (c *conn) sendTo(p []byte, to *sockaddr, call string) (int, error) {
	h := &c.wr
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	for {
		if err := c.check(h); err != nil {
			return 0, err
		}
		if h.ready.Load() {
			h.ready.Store(false)
		}
		sys.RaceRead(p)
		n, errno := sys.SockSendTo(c.fd.Int(), p, to.b[:to.n], 0)
		switch errno {
		case syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return 0, err
			}
		case syscall.EINTR:
		default:
			return n, callError(call, errno)
		}
	}
}

// sendOne sends one message with control data.
func (c *conn) sendOne(p, control []byte, to *sockaddr, call string) (int, error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.names[0] = *to
	b.load(0, p, control)
	if _, err := c.sendBatch(b, 1, call); err != nil {
		return 0, err
	}
	return b.msgs[0].Len(), nil
}
