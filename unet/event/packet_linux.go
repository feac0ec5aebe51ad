// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
	"github.com/ringside-io/ringside/watch"
)

const (
	// packetBatch is how many datagrams one system call sends or receives at most, and
	// packetTurn how many are received in this way before other sockets have their turn.
	packetBatch = 16
	packetTurn  = 64
	// arenaKept bounds the memory that a socket without pending datagrams keeps for them.
	arenaKept = 1 << 20
)

// loopSocket is a PacketConn of a loop. It works the same way with every driver.
type loopSocket struct {
	c   *PacketConn
	l   *loop
	run func() // process, bound once

	mu       sync.Mutex // guards what follows, up to controlBuf
	fd       int        // -1 when closed
	family   int        // of UDP
	closing  bool       // by Close, or after an error: send pending datagrams, then close
	err      error      // why it ends
	notified bool       // the loop will process it
	starved  bool       // a WriteTo was refused, OnWritable is due
	blocked  bool       // the kernel has no room
	paused   bool       // by PauseRead
	arena    []byte     // the addresses and data of queue
	queue    []outPacket
	sent     int // datagrams of queue that were sent
	bytes    int // of the datagrams that were not
	failed   []failedPacket
	one      [1]sys.SockMsg
	onePart  sys.SockPart
	nameBuf  [maxSockaddr]byte
	// controlBuf holds the control data of one.
	controlBuf [sys.SegmentControlSize]byte

	// The fields below belong to the loop.
	slot, gen uint32
	tid       int32 // the thread that armed the receive
	armed     bool
	canceling bool
	polled    bool // a poll for room is in flight
	ending    bool // a cancellation of everything was submitted
	drained   bool // Shutdown: all that had arrived was delivered
	drainLeft int
	kept      []keptPacket // received while reading was paused
	watched   watch.Events
	msg       uring.Msg // of the receive
	from      uring.Sockaddr
	control   [packetControl]byte // the kernel writes into the buffer instead
}

// outPacket is a datagram in loopSocket.arena, or several: the positions and lengths of
// their address and of their data, and their size, 0 for one datagram. single makes the
// loop send them one by one, because the kernel has refused to cut them.
type outPacket struct {
	nameAt, name, dataAt, data, segment int
	single                              bool
}

// keptPacket is a message that is delivered after ResumeRead.
type keptPacket struct {
	peer    Peer
	data    []byte
	segment int
}

type failedPacket struct {
	peer Peer
	err  error
}

// packetIO is a loop's memory for calls that send or receive many datagrams.
type packetIO struct {
	msgs  [packetBatch]sys.SockMsg
	parts [packetBatch]sys.SockPart
	names [packetBatch][maxSockaddr]byte
	// controls is room for the control data of messages that are sent or received.
	controls [packetBatch][packetControl]byte
	bufs     []byte
}

// shareAddress implements engine.
func (r *loops) shareAddress(lc *net.ListenConfig) int {
	if len(r.all) > 1 {
		lc.Control = reusePort(lc.Control)
	}
	return len(r.all)
}

// servePackets implements engine.
func (r *loops) servePackets(all []*PacketConn, sockets []net.PacketConn) error {
	made := make([]*loopSocket, 0, len(all))
	for i, pc := range sockets {
		fd, err := dupFD(pc)
		if err != nil {
			closeMade(made)
			return err
		}
		s := &loopSocket{c: all[i], fd: fd, notified: true}
		s.run = s.process
		if sa, err := syscall.Getsockname(fd); err == nil {
			if _, ok := sa.(*syscall.SockaddrInet4); ok {
				s.family = syscall.AF_INET
			} else {
				s.family = syscall.AF_INET6
			}
		}
		s.from.Reset()
		s.msg.Set(&s.from, nil, s.control[:])
		all[i].sock = s
		made = append(made, s)
	}
	first := uint32(0)
	if len(made) == 1 {
		first = r.next.Add(1)
	}
	for i, s := range made {
		if err := s.addTo(r.from(first + uint32(i))); err != nil {
			closeMade(made[i:])
			_ = all[0].Close()
			return err
		}
	}
	closePackets(sockets) // The server has its own descriptors.
	return nil
}

// closeMade closes sockets that no loop serves. They leave the sockets that they duplicate unchanged.
func closeMade(made []*loopSocket) {
	for _, s := range made {
		closeFDs([]int{s.fd})
	}
}

// addTo adds the socket to the first loop that does not refuse it, as one that has failed does.
func (s *loopSocket) addTo(loops []*loop) (err error) {
	for _, s.l = range loops {
		if err = s.l.addSocket(s); err == nil {
			return nil
		}
	}
	return err
}

// addSocket adds a socket to those that the loop registers. The error is net.ErrClosed or
// the loop's failure.
func (l *loop) addSocket(s *loopSocket) error {
	l.mu.Lock()
	if l.closed || l.server.leaving.Load() {
		defer l.mu.Unlock()
		if l.failure != nil {
			return l.failure
		}
		return net.ErrClosed
	}
	l.joining = append(l.joining, s)
	l.mu.Unlock()
	l.post(l.registerSockets)
	return nil
}

// registerSockets registers the sockets that were added.
func (l *loop) registerSockets() {
	for {
		l.mu.Lock()
		if len(l.joining) == 0 {
			l.mu.Unlock()
			return
		}
		s := l.joining[0]
		l.joining = l.joining[1:]
		l.socketCount++
		l.mu.Unlock()
		l.registerSocket(s)
	}
}

// registerSocket gives a socket a slot with a new generation. If the loop cannot receive datagrams,
// the socket fails at once.
func (l *loop) registerSocket(s *loopSocket) {
	s.gen = l.generation()
	s.slot = uint32(len(l.sockets))
	for i, old := range l.sockets {
		if old == nil {
			s.slot = uint32(i)
		}
	}
	if int(s.slot) == len(l.sockets) {
		l.sockets = append(l.sockets, nil)
	}
	l.sockets[s.slot] = s
	if l.broken != nil {
		return
	}
	if err := l.d.openPackets(); err != nil {
		s.fail(err)
	}
	l.post(s.run) // OnClose may end the goroutine
}

// findSocket returns the socket of a completion, nil if it was closed.
func (l *loop) findSocket(userData uint64) *loopSocket {
	slot := uint32(userData)
	if int(slot) >= len(l.sockets) {
		return nil
	}
	s := l.sockets[slot]
	if s == nil || s.gen != uint32(userData>>genShift)&genMask {
		return nil
	}
	return s
}

func (s *loopSocket) tag(kind int) uint64 { return tag(kind, s.slot, s.gen) }

// notifyAndUnlock makes the loop process the socket. The caller holds mu.
func (s *loopSocket) notifyAndUnlock() {
	notify := !s.notified && s.fd >= 0
	s.notified = s.notified || notify
	s.mu.Unlock()
	if notify {
		s.l.post(s.run)
	}
}

func (s *loopSocket) notify() {
	s.mu.Lock()
	s.notifyAndUnlock()
}

// fail ends the socket because of err.
func (s *loopSocket) fail(err error) {
	s.mu.Lock()
	if !s.closing {
		s.closing = true
		s.err = &net.OpError{Op: "read", Net: s.c.network, Addr: s.c.local, Err: err}
	}
	s.notifyAndUnlock()
}

// setGRO implements packetSocket.
func (s *loopSocket) setGRO(on bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing || s.fd < 0 {
		return net.ErrClosed
	}
	value := 0
	if on {
		value = 1
	}
	return os.NewSyscallError("setsockopt", syscall.SetsockoptInt(s.fd, syscall.IPPROTO_UDP, sys.UDPGRO, value))
}

// setPaused implements packetSocket.
func (s *loopSocket) setPaused(paused bool) {
	s.mu.Lock()
	s.paused = paused
	s.notifyAndUnlock()
}

// close implements packetSocket.
func (s *loopSocket) close() {
	s.mu.Lock()
	s.closing = true
	s.notifyAndUnlock()
}

// pending implements packetSocket.
func (s *loopSocket) pending() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytes
}

// writeTo implements packetSocket.
func (s *loopSocket) writeTo(p []byte, segment int, to Peer) (n int, err error) {
	if segment > maxPacket || segment == 0 && len(p) > maxPacket {
		return 0, os.NewSyscallError("sendto", syscall.EMSGSIZE)
	}
	s.mu.Lock()
	name, err := s.name(s.nameBuf[:], to)
	switch {
	case err != nil:
		s.mu.Unlock()
		return 0, err
	case s.closing || s.fd < 0:
		s.mu.Unlock()
		return 0, net.ErrClosed
	}
	if limit := s.l.server.opts.WriteLimit; s.bytes >= limit {
		if s.flush(s.sendOne); s.bytes >= limit {
			s.starved = true
			s.mu.Unlock()
			return 0, ErrFull
		}
	}
	if !s.notified && s.bytes == 0 && s.l.d.idle() {
		var done bool
		if n, done, err = s.sendNow(name, p, segment); done {
			s.mu.Unlock()
			return n, err
		}
	}
	s.enqueue(name, p[n:], segment)
	s.notifyAndUnlock()
	return len(p), nil
}

// sendMany sends datagrams and returns how many were sent. Only the loop calls it. The
// caller holds mu.
func (s *loopSocket) sendMany(batch []outPacket) (int, syscall.Errno) {
	io := s.l.packetMemory()
	for i, o := range batch {
		name, data, segment := s.parts(o)
		io.msgs[i].Set(name, &io.parts[i], data, segmentControl(io.controls[i][:], segment))
	}
	n, errno := sys.SockSendMany(s.fd, io.msgs[:len(batch)], 0)
	clear(io.msgs[:len(batch)])
	clear(io.parts[:len(batch)])
	return n, errno
}

// sendOne sends the first datagram of a batch. Any goroutine may call it. The caller
// holds mu.
func (s *loopSocket) sendOne(batch []outPacket) (int, syscall.Errno) {
	name, data, segment := s.parts(batch[0])
	return 1, s.send(name, data, segment)
}

// send sends a datagram, or several of segment bytes. The caller holds mu.
func (s *loopSocket) send(name, data []byte, segment int) syscall.Errno {
	s.one[0].Set(name, &s.onePart, data, segmentControl(s.controlBuf[:], segment))
	_, errno := sys.SockSendMany(s.fd, s.one[:], 0)
	s.one[0], s.onePart = sys.SockMsg{}, sys.SockPart{}
	return errno
}

// flush sends the pending datagrams by send. The caller holds mu.
func (s *loopSocket) flush(send func([]outPacket) (int, syscall.Errno)) {
	for s.sent < len(s.queue) && !s.blocked {
		batch := s.nextBatch()
		n, errno := send(batch)
		switch {
		case errno == 0:
			for _, o := range batch[:n] {
				s.l.count.packetsSent.Add(o.datagrams())
			}
		case errno == syscall.EINTR:
			n = 0
		case errno == syscall.EAGAIN && s.c.network != "unixgram":
			n, s.blocked = 0, true
		case batch[0].segment > 0 && !batch[0].single && refusesSegments(errno):
			n, batch[0].single = 0, true
		default: // an error of the first datagram
			n = 1
			name, _, _ := s.parts(batch[0])
			s.failed = append(s.failed, failedPacket{peerFrom(s.fd, name), os.NewSyscallError("sendmsg", errno)})
		}
		for i := range batch[:n] {
			s.remove(&batch[i])
		}
	}
	s.dropSent()
}

// dropSent removes the datagrams that were sent from the front of the queue if they are most of it:
// otherwise a queue that is never empty would grow without limit. The caller holds mu.
func (s *loopSocket) dropSent() {
	if s.sent == len(s.queue) {
		s.queue, s.arena, s.sent = s.queue[:0], s.arena[:0], 0
		// Up to its limit a socket fills its memory again and again.
		if cap(s.arena) > min(2*(s.l.server.opts.WriteLimit+maxPacket), arenaKept) {
			s.queue, s.arena = nil, nil
		}
		return
	}
	at := s.queue[s.sent].nameAt // where the others begin
	if at < len(s.arena)/2 {
		return
	}
	s.arena = s.arena[:copy(s.arena, s.arena[at:])]
	s.queue = s.queue[:copy(s.queue, s.queue[s.sent:])]
	s.sent = 0
	for i := range s.queue {
		s.queue[i].nameAt -= at
		s.queue[i].dataAt -= at
	}
}

// nextBatch returns the next datagrams to send. Datagrams that are sent one by one end a
// batch, so that the rest of them is sent before others. The caller holds mu.
func (s *loopSocket) nextBatch() []outPacket {
	batch := s.queue[s.sent:min(s.sent+packetBatch, len(s.queue))]
	for i := range batch {
		if batch[i].single {
			return batch[:i+1]
		}
	}
	return batch
}

// remove removes what was sent of o from the queue, or what has failed. The caller holds
// mu.
func (s *loopSocket) remove(o *outPacket) {
	n := o.data
	if o.single {
		n = min(n, o.segment)
	}
	o.data -= n
	o.dataAt += n
	s.bytes -= n
	if o.data == 0 {
		s.sent++
		s.bytes--
	}
}

// datagrams returns how many datagrams the next message of o is.
func (o *outPacket) datagrams() uint64 {
	if o.single {
		return 1
	}
	return uint64(segments(o.data, o.segment))
}

// parts returns the next message of o. segment is 0 if it is one datagram.
func (s *loopSocket) parts(o outPacket) (name, data []byte, segment int) {
	name = s.arena[o.nameAt : o.nameAt+o.name : o.nameAt+o.name]
	data = s.arena[o.dataAt : o.dataAt+o.data : o.dataAt+o.data]
	if o.single {
		return name, data[:min(o.segment, o.data)], 0
	}
	return name, data, o.segment
}

// enqueue accepts datagrams for sending. The caller holds mu.
func (s *loopSocket) enqueue(name, p []byte, segment int) {
	for more := true; more; more = len(p) > 0 {
		n, size := message(p, segment)
		at := len(s.arena) + len(name)
		s.queue = append(s.queue, outPacket{nameAt: len(s.arena), name: len(name), dataAt: at, data: n, segment: size})
		s.arena = append(append(s.arena, name...), p[:n]...)
		s.bytes += n + 1 // so that empty datagrams count
		p = p[n:]
	}
}

// sendNow sends datagrams until the kernel has no room or refuses to cut a message, and
// returns how many bytes were sent. done reports whether nothing is left. The caller
// holds mu.
func (s *loopSocket) sendNow(name, p []byte, segment int) (sent int, done bool, err error) {
	for {
		n, size := message(p[sent:], segment)
		errno := s.send(name, p[sent:sent+n], size)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN && s.c.network != "unixgram", size > 0 && refusesSegments(errno):
			return sent, false, nil
		case errno != 0:
			return sent, true, os.NewSyscallError("sendto", errno)
		}
		s.l.count.packetsSent.Add(uint64(segments(n, size)))
		if sent += n; sent == len(p) {
			return sent, true, nil
		}
	}
}

// message returns the length of the next message of p, which the kernel accepts in one
// piece, and the size of its datagrams, 0 for one datagram.
func message(p []byte, segment int) (n, size int) {
	const most, bytes = 64, 65_000 // the kernel's limits, with room for headers
	if segment == 0 {
		return len(p), 0
	}
	n = min(len(p), max(min(most, bytes/segment), 1)*segment)
	if n <= segment {
		return n, 0
	}
	return n, segment
}

// segmentControl returns the control data that makes the kernel cut a message, stored in
// b, nil for one datagram.
func segmentControl(b []byte, segment int) []byte {
	if segment == 0 {
		return nil
	}
	return sys.SegmentControl(b, segment)
}

// refusesSegments reports whether an error may mean that the kernel does not cut a
// message: EIO for a device that does not compute checksums (before Linux 6.11), EINVAL
// for datagrams that exceed a packet, EMSGSIZE for too many bytes.
func refusesSegments(errno syscall.Errno) bool {
	return errno == syscall.EIO || errno == syscall.EINVAL || errno == syscall.EMSGSIZE
}

// process acts on the state of a socket. It is called again if a callback ends the
// goroutine.
func (s *loopSocket) process() {
	aborting := s.l.server.aborting.Load()
	s.mu.Lock()
	if s.fd < 0 {
		s.mu.Unlock()
		return
	}
	s.notified = false
	if !aborting {
		s.flush(s.sendMany)
	}
	for len(s.failed) > 0 {
		f := s.failed[0]
		s.failed = s.failed[1:]
		s.mu.Unlock()
		s.callOnError(f.peer, f.err)
		s.mu.Lock()
	}
	if s.starved && s.bytes <= s.l.server.opts.WriteLimit/2 && !s.closing {
		s.starved = false
		s.mu.Unlock()
		if f := s.c.handler.OnWritable; f != nil {
			s.call(func() { f(s.c) })
		}
		s.mu.Lock()
	}
	for len(s.kept) > 0 && !s.holds() {
		k := s.kept[0]
		s.kept = s.kept[1:]
		s.mu.Unlock()
		s.deliverEach(k.peer, k.data, k.segment)
		s.mu.Lock()
	}
	done := aborting || (s.closing || s.drained) && s.bytes == 0
	want := !s.closing && !s.l.leaving && !aborting && !s.paused
	s.mu.Unlock()
	if !s.l.d.ensureSpace() {
		s.notify()
		return
	}
	if done {
		if s.l.d.endPackets(s) {
			s.finish()
		}
		return
	}
	s.l.d.packetInput(s, want)
	if s.l.leaving && !s.drained && !s.armed {
		s.drain()
	}
}

// drain delivers the datagrams that have arrived before a shutdown.
func (s *loopSocket) drain() {
	if s.drainLeft == 0 {
		s.drainLeft = maxDrain
	}
	more := s.receive(&s.drainLeft)
	if s.drainLeft = max(s.drainLeft, 1); !more || s.drainLeft == 1 {
		s.drained = true
	}
	s.notify()
}

// receive delivers datagrams by plain calls, and reports whether there may be more. budget
// is reduced by their bytes.
func (s *loopSocket) receive(budget *int) (more bool) {
	io := s.l.packetMemory()
	if io.bufs == nil {
		io.bufs = make([]byte, packetBatch*(maxPacket+1))
	}
	for range packetTurn / packetBatch {
		for i := range io.msgs {
			buf := io.bufs[i*(maxPacket+1) : (i+1)*(maxPacket+1)]
			io.msgs[i].Set(io.names[i][:], &io.parts[i], buf, io.controls[i][:])
		}
		n, errno := sys.SockRecvMany(s.fd, io.msgs[:], 0)
		switch errno {
		case 0:
		case syscall.EINTR:
			continue
		case syscall.EAGAIN:
			return false
		default:
			s.fail(os.NewSyscallError("recvmsg", errno))
			return false
		}
		s.l.each(0, n, func(i int) {
			m := &io.msgs[i]
			name, size := io.names[i][:min(m.NameLen(), maxSockaddr)], m.Len()
			if *budget -= size + 1; m.Flags()&sys.MsgTrunc != 0 {
				size = maxPacket + 1
			}
			buf := io.bufs[i*(maxPacket+1):][:size]
			defer sys.Poison(buf)
			s.deliver(name, io.controls[i][:min(m.ControlLen(), packetControl)], buf)
		})
		if n < packetBatch || *budget <= 0 || s.holding() {
			return false
		}
	}
	return true
}

// each calls f for i to n-1, in order, also if a callback ends the goroutine.
func (l *loop) each(i, n int, f func(i int)) {
	defer func() {
		if i < n && l.goexited {
			l.each(i, n, f)
		}
	}()
	for i < n {
		i++
		f(i - 1)
	}
}

// deliver passes a message to the handler, or keeps it while reading is paused.
func (s *loopSocket) deliver(name, control, data []byte) {
	peer, segment := peerFrom(s.fd, name), 0
	if len(control) > 0 && len(data) <= maxPacket {
		if segment = sys.SegmentSize(control); segment >= len(data) {
			segment = 0
		}
	}
	s.mu.Lock()
	if len(s.kept) > 0 || s.holds() {
		s.kept = append(s.kept, keptPacket{peer, bytes.Clone(data), segment})
		s.mu.Unlock()
		return
	}
	s.mu.Unlock()
	s.deliverEach(peer, data, segment)
}

// holds reports whether messages are to be kept. Only the loop calls it. The caller holds
// mu.
func (s *loopSocket) holds() bool { return s.paused && !s.l.leaving }

// holding is holds for a caller that does not hold mu.
func (s *loopSocket) holding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holds()
}

// deliverEach passes a message to the handler: one datagram, or several of segment bytes.
func (s *loopSocket) deliverEach(peer Peer, data []byte, segment int) {
	f := s.c.handler.OnSegments
	if segment == 0 || f != nil {
		s.deliverOne(peer, data, segment, f)
		return
	}
	kept := 0 // after the handler has paused
	s.l.each(0, segments(len(data), segment), func(i int) {
		one := data[i*segment : min((i+1)*segment, len(data))]
		s.mu.Lock()
		keep := kept > 0 || s.holds()
		if keep {
			s.kept = slices.Insert(s.kept, kept, keptPacket{peer, bytes.Clone(one), 0})
			kept++
		}
		s.mu.Unlock()
		if !keep {
			s.deliverOne(peer, one, 0, nil)
		}
	})
}

// deliverOne calls the handler once. More than maxPacket bytes are a datagram that is too
// long. joined is OnSegments.
func (s *loopSocket) deliverOne(peer Peer, data []byte, segment int, joined func(*PacketConn, Peer, []byte, int)) {
	s.mu.Lock()
	if s.closing || s.fd < 0 || s.l.server.aborting.Load() {
		s.mu.Unlock()
		return
	}
	s.notifyAndUnlock() // so that the handler's datagrams are sent at the end of the turn
	if len(data) > maxPacket {
		s.callOnError(peer, errPacketTooLong)
		return
	}
	s.l.count.packetsReceived.Add(uint64(segments(len(data), segment)))
	if segment > 0 {
		s.call(func() { joined(s.c, peer, data, segment) })
	} else if f := s.c.handler.OnPacket; f != nil {
		s.call(func() { f(s.c, peer, data) })
	}
}

func (s *loopSocket) callOnError(peer Peer, err error) {
	if f := s.c.handler.OnError; f != nil {
		s.call(func() { f(s.c, peer, s.c.writeError(peer, err)) })
	}
}

func (s *loopSocket) call(f func()) {
	s.c.call(func() {
		s.l.goexited = true
		s.notify()
	}, f)
}

// finish closes a socket that has no operation in flight.
func (s *loopSocket) finish() {
	s.mu.Lock()
	fd, err := s.fd, s.err
	s.fd = -1
	s.queue, s.arena, s.bytes, s.kept = nil, nil, 0, nil
	s.mu.Unlock()
	_ = syscall.Close(fd)
	s.l.sockets[s.slot] = nil
	s.l.mu.Lock()
	s.l.socketCount--
	s.l.mu.Unlock()
	if f := s.c.handler.OnClose; f != nil {
		s.c.call(func() { s.l.goexited = true }, func() { f(s.c, err) })
	}
}

// closeSockets ends the sockets of a loop that has failed.
func (l *loop) closeSockets() {
	l.registerSockets()
	for _, s := range l.sockets {
		if s != nil {
			s.fail(l.broken)
			s.finish()
		}
	}
}

// shutdownSockets begins the end of all sockets.
func (l *loop) shutdownSockets() {
	for _, s := range l.sockets {
		if s != nil {
			s.notify()
		}
	}
}

func (l *loop) packetMemory() *packetIO {
	if l.packets == nil {
		l.packets = &packetIO{}
	}
	return l.packets
}

// packetSlots is the number of a ring's buffers for datagrams, and packetSlot the length
// of one, with room for the header, the address and the control data, in which a time
// stamp may precede the size of joined datagrams.
const (
	packetSlots   = 64
	packetControl = 128
	packetSlot    = 16 + maxSockaddr + packetControl + maxPacket + 1 + 48
)

// packetGroup is the buffer group for datagrams; group 0 is for connections.
const packetGroup = 1
