// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// A datagram socket stays a socket of package net and waits in the runtime's netpoller.
// One reader empties one socket, so a driver, which polls many sockets in one call, would
// gain nothing and add a wake-up (docs/conn.md has the figures). This package adds
// batches and segments.

// UDPConn is a UDP socket of package net that is also a [BatchConn]. All methods may be
// called concurrently.
type UDPConn struct {
	*net.UDPConn
	datagrams
}

// UnixgramConn is a Unix datagram socket of package net that is also a [BatchConn]. All
// methods may be called concurrently.
type UnixgramConn struct {
	*net.UnixConn
	datagrams
}

// datagrams is the part that this package adds to a datagram socket of package net.
type datagrams struct {
	network   string
	conn      net.Conn // package net's
	raw       syscall.RawConn
	connected bool
	family    int         // of a UDP socket
	udp       bool        // UDP: the kernel cuts messages into datagrams, and may join them
	noJoin    atomic.Bool // the device or the path does not support segments
}

func newUDPConn(c *net.UDPConn, network string) (*UDPConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	u := &UDPConn{UDPConn: c, datagrams: datagrams{network: network, conn: c, raw: raw, connected: c.RemoteAddr() != nil, udp: true}}
	return u, raw.Control(func(fd uintptr) { u.family = familyOf(int(fd)) })
}

func newUnixgramConn(c *net.UnixConn) (*UnixgramConn, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	return &UnixgramConn{UnixConn: c, datagrams: datagrams{network: "unixgram", conn: c, raw: raw, connected: c.RemoteAddr() != nil}}, nil
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

// opError wraps an error as package net does.
func (c *datagrams) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.network, Source: c.conn.LocalAddr(), Addr: c.conn.RemoteAddr(), Err: err}
}

// setName stores the destination of a datagram in the form of the socket's family.
func (c *UDPConn) setName(to *sockaddr, addr netip.AddrPort) error {
	switch {
	case c.connected && addr.IsValid():
		return errConnected
	case c.connected:
		to.n = 0
		return nil
	case !addr.IsValid():
		return errMissingAddress
	}
	return to.set(c.family, addr)
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

// SetGRO sets whether the kernel may join datagrams of one sender that have the same size
// (UDP_GRO, Linux 5.0). It is off by default. Receiving several datagrams at once costs
// much less for each of them. The kernel joins up to 64 datagrams and 65 535 bytes. A
// buffer must have room for that, or the rest is lost. The last datagram may be shorter.
// ReadBatch stores the size of the datagrams in [Packet].Segment. ReadMsgUDP stores it in
// the control data, from which [SegmentSize] reads it. The other methods do not return
// the size.
func (c *UDPConn) SetGRO(on bool) error {
	var setErr error
	err := c.raw.Control(func(fd uintptr) { setErr = setOption(int(fd), syscall.IPPROTO_UDP, sys.UDPGRO, number(on)) })
	if err == nil {
		err = setErr
	}
	if err != nil {
		return &net.OpError{Op: "set", Net: c.network, Addr: c.LocalAddr(), Err: withoutOp(err)}
	}
	return nil
}

// SegmentControl returns control data for [UDPConn.WriteMsgUDP]. With it the kernel cuts
// the data into datagrams of size bytes, of which the last may be shorter (UDP_SEGMENT).
// Other control data may follow it. If the network device does not support that,
// WriteMsgUDP fails with EIO; WriteBatch sends the datagrams one by one instead.
func SegmentControl(size int) []byte {
	return sys.SegmentControl(make([]byte, sys.SegmentControlSize), size)
}

// SegmentSize returns the size in bytes of the datagrams that the kernel has joined (see
// [UDPConn.SetGRO]). oob is the control data from [UDPConn.ReadMsgUDP]. It returns 0 for
// a single datagram.
func SegmentSize(oob []byte) int { return sys.SegmentSize(oob) }

// setName stores the destination of a datagram; "" is the peer of a connected
// socket.
func (c *UnixgramConn) setName(to *sockaddr, name string) error {
	switch {
	case c.connected && name != "":
		return errConnected
	case c.connected:
		to.n = 0
		return nil
	case name == "":
		return errMissingAddress
	}
	return to.setUnix(name)
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

var errNoSegments = errors.New("segments need a UDP socket: leave Packet.Segment 0")

// readBatch receives into packets; name stores the sender of one.
func (c *datagrams) readBatch(packets []Packet, name func(p *Packet, from *sockaddr)) (int, error) {
	n := min(len(packets), batchSize)
	if n == 0 {
		return 0, nil
	}
	b := batches.Get().(*batch)
	defer b.release(n)
	for i := range n {
		var control []byte
		if c.udp { // always: SetGRO may be called while this call waits
			control = b.controls[i][:]
		}
		b.room(i, packets[i].Data, control)
	}
	b.count, b.flags = n, 0
	got, err := b.result("recvmmsg", c.raw.Read(b.receive))
	if err != nil {
		return 0, c.opError("read", err)
	}
	for i := range got {
		p := &packets[i]
		p.N, p.Segment, p.Truncated = b.msgs[i].Len(), 0, b.msgs[i].Flags()&sys.MsgTrunc != 0
		if c.udp {
			p.Segment = joined(b.controls[i][:b.msgs[i].ControlLen()], p.N)
		}
		name(p, &b.names[i])
	}
	return got, nil
}

// writeBatch sends packets; name stores the destination of one.
func (c *datagrams) writeBatch(packets []Packet, name func(p *Packet, to *sockaddr) error) (done int, err error) {
	b := batches.Get().(*batch)
	used := 0
	defer func() { b.release(used) }()
	for done < len(packets) && err == nil {
		n, packed, nameErr := b.pack(packets[done:], name, c.udp && !c.noJoin.Load())
		used = max(used, packed)
		sent, sendErr := c.sendBatch(b, n)
		before := done
		for i := range sent {
			done += b.msgs[i].Parts()
		}
		if sendErr != nil && sent < n && b.segmented(sent) && noSegments(sendErr) {
			var k int
			k, sendErr = c.sendEach(packets[done : done+b.msgs[sent].Parts()])
			done += k
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

// pack makes messages of the first packets. It returns how many it made, of how many
// packets, and why it could not make another. With join it makes one message of
// successive packets with the same size and destination, which the kernel cuts again:
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

// maxJoined limits the bytes of a message that the kernel cuts. maxJoinedSize limits the
// bytes of each datagram: the kernel does not cut datagrams that may exceed a packet.
const (
	maxJoined     = 65_000
	maxJoinedSize = 1400
)

// segmented reports whether the kernel is to cut message i.
func (b *batch) segmented(i int) bool { return b.msgs[i].ControlLen() > 0 }

// noSegments reports whether an error may mean that the kernel refuses these segments:
// EIO for a device that does not compute checksums (before Linux 6.11), EINVAL for too
// many or too large segments, EMSGSIZE for too many bytes.
func noSegments(err error) bool {
	return errors.Is(err, syscall.EIO) || errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EMSGSIZE)
}

// sendBatch sends the first n messages and returns how many were sent.
func (c *datagrams) sendBatch(b *batch, n int) (int, error) {
	if n == 0 {
		return 0, nil
	}
	b.count, b.done = n, 0
	return b.result("sendmmsg", c.raw.Write(b.send))
}

// sendEach sends the datagrams of packets one by one and returns how many packets were
// sent. If they were joined, the socket joins none from then on.
func (c *datagrams) sendEach(packets []Packet) (int, error) {
	if len(packets) > 1 {
		c.noJoin.Store(true)
	}
	n, err := oneByOne{c.conn.(net.PacketConn)}.WriteBatch(packets)
	return n, withoutOp(err)
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

// batchSize limits the datagrams of one system call.
const batchSize = 32

// controlRoom is room for the control data of a message. The kernel stores time stamps and the
// like, if the program has set these options, before the size of joined datagrams.
const controlRoom = 256

// batch is the argument of system calls with several datagrams, and their result.
type batch struct {
	msgs     [batchSize]sys.SockMsg
	parts    [batchSize]sys.SockPart
	names    [batchSize]sockaddr
	controls [batchSize][controlRoom]byte // the control data of segments

	count, flags  int // how many messages, and the flags of the call
	done          int // how many were received or sent
	errno         syscall.Errno
	receive, send func(fd uintptr) bool // tryReceive and trySend, made once
}

var batches = sync.Pool{New: func() any {
	b := new(batch)
	b.receive, b.send = b.tryReceive, b.trySend
	return b
}}

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

// tryReceive receives messages. It returns false if none has arrived.
func (b *batch) tryReceive(fd uintptr) bool {
	for {
		b.done, b.errno = sys.SockRecvMany(int(fd), b.msgs[:b.count], sys.MsgDontWait|b.flags)
		if b.errno != syscall.EINTR {
			break
		}
	}
	for i := range b.done {
		b.names[i].n = b.msgs[i].NameLen()
	}
	return b.errno != syscall.EAGAIN
}

// trySend sends messages. It returns false if there is no room for the next.
func (b *batch) trySend(fd uintptr) bool {
	for b.done < b.count {
		var n int
		n, b.errno = sys.SockSendMany(int(fd), b.msgs[b.done:b.count], sys.MsgDontWait)
		b.done += n
		switch b.errno {
		case syscall.EAGAIN:
			return false
		case 0, syscall.EINTR:
		default:
			return true
		}
	}
	b.errno = 0
	return true
}

// result returns how many messages were received or sent, and the error of the wait or
// of the system call.
func (b *batch) result(call string, err error) (int, error) {
	if err == nil {
		err = callError(call, b.errno)
	}
	return b.done, withoutOp(err)
}

// receiveOne receives one message with its control data.
func (c *conn) receiveOne(p, control []byte, flags int, call string) (n, controlLen, msgFlags int, from sockaddr, err error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.room(0, p, control)
	b.count, b.flags = 1, flags
	if _, err := b.result(call, c.whenReady(&c.rd, b.receive)); err != nil {
		return 0, 0, 0, from, err
	}
	m := &b.msgs[0]
	return m.Len(), m.ControlLen(), m.Flags(), b.names[0], nil
}

// sendOne sends one message with control data.
func (c *conn) sendOne(p, control []byte, to *sockaddr, call string) (int, error) {
	b := batches.Get().(*batch)
	defer b.release(1)
	b.names[0] = *to
	b.load(0, p, control)
	b.count, b.done = 1, 0
	if _, err := b.result(call, c.whenReady(&c.wr, b.send)); err != nil {
		return 0, err
	}
	return b.msgs[0].Len(), nil
}
