// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// loop is a listening socket and its connections. It works the same way with every
// driver. Fields belong to the goroutine in driver.run unless their comment differs.
type loop struct {
	d      driver
	server *Server
	listen listener

	mu       sync.Mutex // guards inbox, tasks, arrivals and closed
	inbox    []*Conn    // connections whose state another goroutine has changed
	tasks    []func()
	arrivals []*Conn     // enrolled connections
	closed   bool        // no further connection can be enrolled
	failure  error       // a copy of broken, guarded by mu
	hasInput atomic.Bool // one of the lists is not empty

	conns []*Conn // by slot
	free  []uint32
	open  int
	gen   uint32
	dirty []*Conn // to be processed in the next turn

	// The items of the lists above that are being processed.
	notified batch[*Conn]
	running  batch[func()]
	enrolled batch[*Conn]
	marked   batch[*Conn]
	timers   timerHeap

	turns uint32 // begun, modulo 1<<32

	retryAt  time.Time // when a refused submission is tried again
	delayed  []func()  // to be called at delayAt
	delayAt  time.Time
	leaving  bool
	over     bool
	goexited bool   // a callback has called runtime.Goexit
	broken   error  // why the driver can no longer be used
	scratch  []byte // for receiving outside of a ring

	sockets     []*loopSocket // datagram sockets, by slot
	joining     []*loopSocket // not registered yet; guarded by mu
	socketCount int           // in sockets; guarded by mu
	packets     *packetIO

	count counters
}

// driver waits and moves data for a loop, by a ring or by readiness. Any goroutine may
// call idle and wake; only the loop's goroutine calls the other methods. For output,
// input, end and awaitWritable it holds the connection's mutex.
type driver interface {
	// base returns the loop.
	base() *loop
	// start opens the driver's resources; undo closes the resources of a loop that never
	// ran.
	start() error
	undo() error
	// run serves until the loop is told to stop and its last connection is
	// closed, and frees the driver's resources. When a callback has ended it by
	// runtime.Goexit, it is called again and continues.
	run()
	// idle reports whether a Write from another goroutine may send at once; wake
	// makes the loop process its inbox.
	idle() bool
	wake()
	// ensureSpace reports whether there are enough SQEs to process one connection,
	// and submits pending ones if not.
	ensureSpace() bool
	// output sends the pending bytes.
	output(c *Conn)
	// input starts or stops receiving, and reports whether kept data can be given
	// to the handler.
	input(c *Conn) (release bool)
	// end cancels the operations of the connection that are in flight, and reports
	// whether there are none.
	end(c *Conn) bool
	// awaitWritable makes the loop process the connection when its socket has room.
	awaitWritable(c *Conn)
	// forget is called before the connection's descriptor is closed.
	forget(c *Conn)
	// armAccept starts accepting, unless that was stopped. disarm stops it and calls
	// closeListener when it has stopped.
	armAccept()
	disarm()
	// openPackets prepares for datagram sockets. packetInput starts or stops receiving,
	// and waits for room when a socket is blocked. endPackets cancels the operations of
	// the socket that are in flight, and reports whether there are none.
	openPackets() error
	packetInput(s *loopSocket, want bool)
	endPackets(s *loopSocket) bool
}

// serve runs the loop until it has nothing left to do. When a callback calls
// runtime.Goexit, only the goroutine's deferred functions still run: the loop continues
// in one of these, on the same thread. Its fields hold the state of the interrupted
// turn.
func (l *loop) serve() {
	defer func() {
		if l.goexited {
			l.goexited = false
			l.serve()
		}
	}()
	l.d.run()
}

// exited implements backend.
func (l *loop) exited(*Conn) { l.goexited = true }

// base implements driver.
func (l *loop) base() *loop { return l }

// memory returns a buffer for receiving outside of a ring.
func (l *loop) memory() []byte {
	if l.scratch == nil {
		l.scratch = make([]byte, l.server.opts.largest)
	}
	return l.scratch
}

// memoryFor returns a buffer for receiving from a connection. While responses are pending,
// the buffer is no longer than WriteLimit: the handler may write as many bytes in response
// to each piece.
func (l *loop) memoryFor(c *Conn) []byte {
	p, o := l.memory(), &l.server.opts
	if c.handler.ReceiveInto != nil {
		p = p[:min(len(p), firstPiece)] // the handler has memory for more
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.n > 0 {
		p = p[:min(len(p), max(o.WriteLimit, o.BufferSize))]
	}
	return p
}

const (
	// pieces is how many plain receives a connection gets, and acceptBatch how many
	// connections are accepted, before other connections have their turn.
	pieces      = 2
	acceptBatch = 64
	// rawBytes is how many bytes the kernel may copy during one call. sendTurn is how
	// many it may copy for one connection before other connections have their turn.
	rawBytes = 512 << 10
	sendTurn = 1 << 20
	// firstPiece is how much is received before a handler with ReceiveInto is asked for
	// memory: a whole body of 64 KiB, and little to copy of a longer one.
	firstPiece = 128 << 10
)

// receiveNow receives by plain calls and passes the data to the handler. It returns how
// much it received, and whether there may be more.
func (l *loop) receiveNow(c *Conn) (total int, more bool) {
	if s := c.secure; s != nil && s.opened && !s.ended && len(s.in) == 0 {
		return l.receiveSecure(c)
	}
	memory := l.memoryFor(c)
	for range pieces {
		left := l.allowance(c)
		if left == 0 {
			return total, true
		}
		p := c.receiveInto(min(left, bulkPiece))
		lent := len(p) > 0
		if !lent {
			p = memory[:min(len(memory), left)]
		}
		n, errno := sys.SockRecv(c.bstate.fd, p, sys.MsgDontWait)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return total, false
		case errno != 0:
			l.receiveEnded(c, -int32(errno))
			return total, false
		case n == 0:
			l.receiveEnded(c, 0)
			return total, false
		}
		total += n
		l.deliver(c, p[:n])
		if !lent {
			sys.Poison(p[:n])
		}
		if n < len(p) || c.bstate.kept != nil {
			return total, false
		}
	}
	return total, true
}

// receiveSecure is receiveNow for a connection with TLS after its handshake: crypto/tls
// receives into its own memory.
func (l *loop) receiveSecure(c *Conn) (total int, more bool) {
	in := tlsInput{loop: l}
	c.secure.source = &in
	defer func() { c.secure.source = nil }() // OnData may end the goroutine
	c.secure.pump()
	c.secure.source = nil
	if in.ended {
		l.receiveEnded(c, in.res)
	}
	l.markDirty(c)
	return in.total, !in.ended && !in.drained
}

// tlsInput is the source of a connection's TLS during receiveSecure.
type tlsInput struct {
	*loop
	total   int
	drained bool  // the socket has no more
	ended   bool  // receiving has ended, with res
	res     int32 // as of receiveEnded
}

// receiveTLS implements source.
func (in *tlsInput) receiveTLS(c *Conn, p []byte) (int, error) {
	p = p[:min(len(p), in.allowance(c))]
	for len(p) > 0 && !in.drained && !in.ended {
		n, errno := sys.SockRecv(c.bstate.fd, p, sys.MsgDontWait)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			in.drained = true
		case errno != 0 || n == 0:
			in.ended, in.res = true, -int32(errno)
		default:
			in.drained = n < len(p)
			in.total += n
			c.bstate.turnLeft -= int32(n)
			return n, nil
		}
	}
	return 0, errWouldBlock
}

// finished reports whether the loop has nothing left to do, and sets over if so.
func (l *loop) finished() bool {
	if l.leaving && l.open == 0 && l.listen.closed() && l.closeArrivals() {
		l.over = true
	}
	return l.over
}

// closeArrivals reports whether no connection or socket waits for the loop. If so, no
// more can be added.
func (l *loop) closeArrivals() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = len(l.arrivals) == 0 && l.socketCount == 0 && len(l.joining) == 0
	return l.closed
}

// registerArrivals registers the connections that were enrolled.
func (l *loop) registerArrivals() {
	for !l.enrolled.empty() {
		l.register(l.enrolled.pop())
	}
}

// batch is a list that is being processed. If a callback interrupts that by
// runtime.Goexit, the rest is still there when the loop continues.
type batch[T any] struct {
	items []T
	next  int // the items before it are done
}

func (b *batch[T]) empty() bool { return b.next == len(b.items) }

// swap takes over a list, and returns an empty one in its place. The batch is empty.
func (b *batch[T]) swap(list []T) []T {
	unused := b.items[:0]
	b.items, b.next = list, 0
	return unused
}

// pop returns the next item. A closed connection must not be kept alive, so the batch
// forgets it.
func (b *batch[T]) pop() T {
	var none T
	item := b.items[b.next]
	b.items[b.next] = none
	b.next++
	return item
}

// enroll adds a connection to the arrivals.
func (l *loop) enroll(c *Conn) error {
	l.mu.Lock()
	if l.closed || l.server.leaving.Load() {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.arrivals = append(l.arrivals, c)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
	return nil
}

// loops is the engine of a server with event loops.
type loops struct {
	tally
	all    []driver
	path   string        // of a Unix socket
	unlink sync.Once     // removes the file of path
	next   atomic.Uint32 // the loop for the next enrolled connection
}

// removeFile removes the file of a Unix socket, once: another socket may use the path afterwards.
func (r *loops) removeFile() { r.unlink.Do(func() { unlink(r.path) }) }

// startLoops starts a server with loops of one kind.
func (s *Server) startLoops(address string, kind Mode) error {
	r := &loops{}
	listeners, addr, err := s.listen(address)
	if err != nil {
		return err
	}
	if s.given == nil {
		r.path = fileOf(addr)
	}
	for _, fd := range listeners {
		d := newDriver(kind)
		l := d.base()
		l.d, l.server, l.listen.fd, l.listen.stopped = d, s, fd, fd < 0
		l.listen.lingers = sys.SockLingers(fd)
		l.listen.shared = s.given != nil || s.network == "unix" && len(listeners) > 1
		if err = d.start(); err != nil {
			break
		}
		r.all = append(r.all, d)
	}
	if err != nil {
		return errors.Join(err, r.undo(listeners))
	}
	s.addr, s.engine = addr, r
	for range r.all {
		r.wg.Add(1)
	}
	r.closeWhenDone(func() {
		s.background.Wait()
		r.removeFile()
	})
	for i, d := range r.all {
		go func() {
			defer func() { // runtime.Goexit runs nothing else
				if err := d.base().broken; err != nil {
					r.state.end(fmt.Errorf("event: loop %d of %d has failed: %w", i+1, len(r.all), err))
				}
				r.wg.Done()
			}()
			s.label(i + 1)
			d.base().serve()
		}()
	}
	return nil
}

// newDriver returns a loop of a kind.
func newDriver(kind Mode) driver {
	if kind == ModeEpoll {
		return &pollLoop{}
	}
	return &ringLoop{}
}

// undo closes the resources of loops that never ran.
func (r *loops) undo(listeners []int) error {
	var err error
	for _, d := range r.all {
		err = errors.Join(err, d.undo())
	}
	closeFDs(listeners)
	r.removeFile() // otherwise the path could not be bound again
	return err
}

func (r *loops) shutdown() {
	r.removeFile() // as package net does when it closes a listener
	for _, d := range r.all {
		l := d.base()
		l.post(l.shutdownAll)
	}
}

func (r *loops) abort() { r.shutdown() }

// enroll implements engine.
func (r *loops) enroll(nc net.Conn, o ConnOptions) (*Conn, error) {
	fd, err := dupFD(nc)
	if err != nil {
		return nil, err
	}
	from := r.from(r.next.Add(1))
	if o.Beside != nil {
		from = []*loop{o.Beside.back.(*loop)}
	}
	for _, l := range from { // a loop that has failed refuses
		c := l.newConn(fd, nc.LocalAddr().Network(), o)
		c.bstate.lingers = sys.SockLingers(fd)
		l.count.enrolled.Add(1)
		if err = l.enroll(c); err == nil {
			return c, nil
		}
		l.count.enrolled.Add(^uint64(0))
	}
	closeFDs([]int{fd})
	return nil, err
}

// from returns the loops, beginning with loop n modulo their number.
func (r *loops) from(n uint32) []*loop {
	all := make([]*loop, len(r.all))
	for i := range all {
		all[i] = r.all[(n+uint32(i))%uint32(len(r.all))].base()
	}
	return all
}

func (r *loops) stats() Stats {
	var s Stats
	for _, d := range r.all {
		s = s.Plus(d.base().count.stats())
	}
	return s
}

// idle implements backend.
func (l *loop) idle() bool { return l.d.idle() }

// notify implements backend.
func (l *loop) notify(c *Conn) {
	l.mu.Lock()
	l.inbox = append(l.inbox, c)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// do implements backend.
func (l *loop) do(c *Conn, f func()) {
	if c.isClosed() {
		return
	}
	l.post(func() {
		if !c.isClosed() {
			c.run(f)
		}
	})
}

// post makes the loop call a function. A loop that has ended does not call it.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.tasks = append(l.tasks, f)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// processInbox processes the inbox, the tasks and the arrivals, and reports whether
// there were any.
func (l *loop) processInbox() bool {
	if l.notified.empty() && l.running.empty() && l.enrolled.empty() { // otherwise a callback has exited
		if !l.hasInput.Load() {
			return false
		}
		l.mu.Lock()
		l.inbox = l.notified.swap(l.inbox)
		l.tasks = l.running.swap(l.tasks)
		l.arrivals = l.enrolled.swap(l.arrivals)
		l.hasInput.Store(false)
		l.mu.Unlock()
	}
	for !l.notified.empty() {
		l.process(l.notified.pop())
	}
	for !l.running.empty() {
		l.running.pop()()
	}
	l.registerArrivals()
	return true
}

// markDirty makes the loop process a connection in this turn or the next.
func (l *loop) markDirty(c *Conn) {
	if !c.bstate.marked {
		c.bstate.marked = true
		l.dirty = append(l.dirty, c)
	}
}

// processDirty processes the connections that were marked, and reports whether there
// were any.
func (l *loop) processDirty() bool {
	if l.marked.empty() { // otherwise a callback has exited
		if len(l.dirty) == 0 {
			return false
		}
		l.dirty = l.marked.swap(l.dirty) // Processing may mark a connection again, for the next turn.
	}
	for !l.marked.empty() {
		c := l.marked.pop()
		c.bstate.marked = false
		l.process(c)
	}
	return true
}

// sendNow implements backend.
func (l *loop) sendNow(c *Conn, p []byte) int {
	if c.bstate.fd < 0 {
		return 0
	}
	n, _ := sys.SockSend(c.bstate.fd, p[:min(len(p), rawBytes)], sys.MsgDontWait)
	return n // After an error n is 0. If the error lasts, the loop gets it as well.
}

// sendPending sends pending bytes by plain calls, and reports whether the socket has no
// more room. The caller holds the connection's mutex.
func (l *loop) sendPending(c *Conn) (blocked bool) {
	for left := sendTurn; left > 0; {
		p := c.out.front()
		if p == nil {
			if c.out.n > 0 {
				l.sendFile(c)
			}
			return false
		}
		p = p[:min(len(p), rawBytes)]
		n, errno := sys.SockSend(c.bstate.fd, p, sys.MsgDontWait)
		switch errno {
		case 0:
			c.out.advance(n)
			if left -= n; n < len(p) {
				return true
			}
		case syscall.EINTR:
		case syscall.EAGAIN:
			return true
		default:
			c.fail(c.opError("write", os.NewSyscallError("send", errno)))
			l.markDirty(c)
			return false
		}
	}
	l.markDirty(c) // give the others their turn
	return false
}

// addrs implements backend.
func (l *loop) addrs(c *Conn) *addrs {
	a := new(addrs)
	for i := range a {
		var name [maxSockaddr]byte
		n, errno := 0, syscall.EBADF
		if c.bstate.fd >= 0 {
			n, errno = sys.SockName(c.bstate.fd, name[:], i == remoteAddr)
		}
		if errno == 0 {
			a[i] = netAddr(c.bstate.fd, name[:n])
		}
	}
	return a
}

const (
	genMask   = 1<<24 - 1
	genShift  = 32
	kindShift = 56
)

// tag is the user data of an entry: its kind, and the connection's slot and
// generation.
func tag(kind int, slot, gen uint32) uint64 {
	return uint64(kind)<<kindShift | uint64(gen)<<genShift | uint64(slot)
}

func (k *backendState) tag(kind int) uint64 { return tag(kind, k.slot, k.gen) }

// find returns the connection of a completion, nil if it was closed.
func (l *loop) find(userData uint64) *Conn {
	slot := uint32(userData)
	if int(slot) >= len(l.conns) {
		return nil
	}
	c := l.conns[slot]
	if c == nil || c.bstate.gen != uint32(userData>>genShift)&genMask {
		return nil
	}
	return c
}

// allowance returns how many bytes OnData may still get of a connection in this turn.
func (l *loop) allowance(c *Conn) int {
	k := &c.bstate
	if k.turn != l.turns {
		k.turn, k.turnLeft = l.turns, int32(min(l.server.opts.TurnBytes, math.MaxInt32))
	}
	return max(int(k.turnLeft), 0)
}

// deliver passes data to the handler, or keeps it while reading is stopped.
func (l *loop) deliver(c *Conn, data []byte) {
	k := &c.bstate
	c.mu.Lock()
	want := c.wantsInput()
	gone := c.state.closing || c.state.aborted || k.discard
	now := want && !gone && k.kept == nil && l.allowance(c) > 0
	if now {
		c.state.notified = true // the loop processes it in any case: a Write need not notify it
	}
	c.mu.Unlock()
	switch {
	case gone:
	case now:
		k.turnLeft -= int32(len(data))
		c.onData(data)
		l.markDirty(c)
	default:
		if k.kept == nil {
			k.kept = new(keptInput)
		}
		k.kept.queue.add(data)
		l.markDirty(c)
	}
}

// release passes kept data to the handler, and then data that plain calls receive.
func (l *loop) release(c *Conn) {
	k := &c.bstate
	for k.kept != nil && k.kept.queue.n > 0 {
		h := k.kept
		c.mu.Lock()
		want := c.wantsInput()
		c.mu.Unlock()
		left := l.allowance(c)
		if !want || left <= 0 {
			break
		}
		p := h.queue.front()
		p = p[:min(len(p), l.server.opts.largest, left)]
		k.turnLeft -= int32(len(p))
		c.onData(p)
		h.queue.advance(len(p))
	}
	h := k.kept
	if h != nil && h.queue.n == 0 {
		k.kept = nil
	}
	switch {
	case k.kept != nil:
	case h != nil && h.ended:
		l.receiveEnded(c, h.res)
	case k.mayHaveMore:
		k.mayHaveMore = false // OnData may end the goroutine: then input starts a receive
		_, k.mayHaveMore = l.receiveNow(c)
	}
	l.markDirty(c)
}

// receiveEnded handles the end of receiving: end of stream, or an error.
func (l *loop) receiveEnded(c *Conn, res int32) {
	if res == 0 {
		c.ended(c.bstate.discard)
	} else {
		c.mu.Lock()
		c.fail(c.opError("read", os.NewSyscallError("recv", syscall.Errno(-res))))
		c.mu.Unlock()
	}
	l.markDirty(c)
}

// process acts on the state of a connection.
func (l *loop) process(c *Conn) {
	c.mu.Lock()
	s := &c.state
	if s.closed {
		c.mu.Unlock()
		return
	}
	if !l.d.ensureSpace() {
		c.mu.Unlock()
		l.markDirty(c)
		return
	}
	s.notified = false
	if c.secure != nil {
		c.secure.closeNotify()
	}
	if s.timer {
		l.schedule(c)
	}
	if l.processEnd(c) {
		c.mu.Unlock()
		l.finish(c)
		return
	}
	l.d.output(c)
	if writable := c.takeWritable(); writable || len(c.out.finished) > 0 {
		s.notified = true // the loop processes it in any case
		c.mu.Unlock()
		c.callFinished()
		if writable {
			c.onWritable() // before input, which reads if what it writes leaves room
		}
		c.mu.Lock()
		s.notified = false
		l.markDirty(c)
	}
	release := l.d.input(c)
	c.mu.Unlock()
	if release {
		l.release(c)
	}
	if c.secure != nil && c.secure.waiting {
		c.secure.pump()
	}
	if l.leaving && !c.bstate.drained && !c.bstate.armed {
		l.drain(c)
	}
}

// processEnd reports whether the connection can be closed now, and otherwise works
// towards that. The caller holds the connection's mutex.
func (l *loop) processEnd(c *Conn) bool {
	s := &c.state
	switch {
	case s.aborted:
	case s.closing && c.out.n == 0 && !c.out.busy:
	default:
		return false
	}
	if c.secure != nil && c.secure.writing > 0 {
		return false // the Write that encrypts notifies the loop
	}
	return l.d.end(c)
}

// finish closes a connection that has no operation in flight.
func (l *loop) finish(c *Conn) {
	c.setClosed()
	c.mu.Lock()
	err := c.reason()
	c.mu.Unlock()
	defer l.reclaim(c, resets(err))
	c.onClose(err)
}

// reclaim frees the resources of a connection after OnClose.
func (l *loop) reclaim(c *Conn, reset bool) {
	k := &c.bstate
	c.mu.Lock()
	l.d.forget(c)
	fd := k.fd
	k.fd = -1
	c.out.drop()
	if k.kept != nil {
		k.kept.queue.drop()
		k.kept = nil
	}
	l.timers.remove(c)
	c.mu.Unlock()
	if reset {
		_ = syscall.SetsockoptLinger(fd, syscall.SOL_SOCKET, syscall.SO_LINGER, &syscall.Linger{Onoff: 1})
	}
	l.closeFD(fd, k.lingers && !reset)
	l.conns[k.slot] = nil
	l.free = append(l.free, k.slot)
	l.open--
	l.count.open.Add(-1)
	if !l.listen.retryAt.IsZero() {
		l.d.armAccept() // There is a descriptor again.
	}
}

// closeFD closes the descriptor of a connection. If the socket lingers (SO_LINGER), the kernel waits
// for the peer; neither the loop nor the end of the server waits for that.
func (l *loop) closeFD(fd int, lingers bool) {
	if lingers {
		go func() { _ = syscall.Close(fd) }()
		return
	}
	_ = syscall.Close(fd)
}

// listener is the loop's listening socket.
type listener struct {
	fd      int  // -1 when closed
	lingers bool // accepted sockets linger, as they inherit that
	shared  bool // other loops, or other processes, may accept from the same socket
	armed   bool
	stopped bool
	left    int       // in a shutdown: 1 + the number of connections still to be accepted
	retryAt time.Time // accepting is paused until then
	pause   time.Duration
}

func (a *listener) closed() bool { return a.fd < 0 && !a.armed }

// pauseAccept delays accepting. The connections wait in the backlog.
func (l *loop) pauseAccept() {
	a := &l.listen
	a.pause = min(max(2*a.pause, firstPause), maxPause)
	a.retryAt = time.Now().Add(a.pause)
	l.count.acceptRetries.Add(1)
}

// stopAccept ends accepting.
func (l *loop) stopAccept() {
	a := &l.listen
	if !a.stopped {
		a.stopped, a.retryAt = true, time.Time{}
		l.d.disarm()
	}
}

// closeListener accepts the connections in the backlog, unless the server is aborting,
// and closes the listening socket. It accepts a batch in each turn, and in total
// no more than the backlog can have held when it began, as clients may keep connecting.
func (l *loop) closeListener() {
	a := &l.listen
	if a.fd < 0 {
		return
	}
	if a.left == 0 {
		a.left = maxBacklog()
		if syscall.SetNonblock(a.fd, true) != nil {
			a.left = 1
		}
	}
	l.post(l.closeListener) // before OnOpen, which may end the goroutine
	for range acceptBatch {
		if l.server.aborting.Load() || a.left == 1 {
			break
		}
		fd, _, err := syscall.Accept4(a.fd, syscall.SOCK_CLOEXEC)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			a.left = 1
			break
		}
		a.left--
		l.attach(fd)
	}
	if l.server.aborting.Load() || a.left == 1 {
		_ = syscall.Close(a.fd)
		a.fd = -1
	}
}

// attach takes over an accepted connection.
func (l *loop) attach(fd int) {
	if l.server.aborting.Load() {
		_ = syscall.Close(fd)
		return
	}
	l.count.accepted.Add(1)
	c := l.newConn(fd, l.server.network, ConnOptions{})
	c.bstate.lingers = l.listen.lingers
	if config := l.server.opts.TLS; config != nil {
		c.secure = newSecure(c, config, false)
	}
	l.register(c)
}

func (l *loop) newConn(fd int, network string, o ConnOptions) *Conn {
	c := l.server.newConn(l, network, o)
	c.bstate.fd = fd
	if o.TLS != nil {
		c.secure = newSecure(c, o.TLS, true)
	}
	c.state.notified = true // register marks it dirty
	return c
}

// register gives a connection its slot and calls OnOpen.
func (l *loop) register(c *Conn) {
	l.gen++
	k := &c.bstate
	k.gen = l.gen & genMask
	if n := len(l.free); n > 0 {
		k.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.conns[k.slot] = c
	} else {
		k.slot = uint32(len(l.conns))
		l.conns = append(l.conns, c)
	}
	l.open++
	l.count.open.Add(1)
	c.onOpen()
	if l.leaving {
		l.shutdownConn(c)
	}
	l.markDirty(c)
}

// shutdownAll begins a shutdown.
func (l *loop) shutdownAll() {
	l.leaving = true
	for _, c := range l.conns {
		if c != nil {
			l.shutdownConn(c)
		}
	}
	l.shutdownSockets()
	l.stopAccept()
}

// shutdownConn begins the end of a connection, or aborts it if the server is aborting.
func (l *loop) shutdownConn(c *Conn) {
	if l.server.aborting.Load() {
		c.mu.Lock()
		c.fail(net.ErrClosed)
		c.mu.Unlock()
	}
	l.markDirty(c)
}

// drain passes the data that has arrived on an ending connection to the handler, and then
// requests its end. It stops while reading is paused, and is called again when that may
// have changed.
func (l *loop) drain(c *Conn) {
	k := &c.bstate
	p := l.memory()
	if k.drainLeft == 0 {
		k.drainLeft = maxDrain
	}
	for n := 0; k.kept == nil; n++ {
		if n == pieces {
			l.markDirty(c) // give the others their turn
			return
		}
		c.mu.Lock()
		want, s, fd := c.wantsInput(), c.state, k.fd
		c.mu.Unlock()
		switch {
		case s.closing || s.aborted:
			k.drained = true
			return
		case s.eof && c.secure != nil && c.secure.waiting:
			return // decrypted data have not been passed to OnData
		case s.eof:
			k.drained = true
			l.requestCloseAfterEOF(c)
			return
		}
		if !want {
			return
		}
		n, errno := 0, syscall.EAGAIN
		if k.drainLeft > 0 {
			n, errno = sys.SockRecv(fd, p, sys.MsgDontWait)
		}
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			k.drained = true
			l.requestClose(c)
			return
		case errno != 0:
			l.receiveEnded(c, -int32(errno))
		case n == 0:
			l.receiveEnded(c, 0)
		default:
			if k.drainLeft -= int32(n); k.drainLeft == 0 {
				k.drainLeft = -1
			}
			c.onData(p[:n])
		}
	}
}

// requestCloseAfterEOF is requestClose for a connection whose peer has ended its direction.
// OnEOF has left it to the handler to close it, so there is no default.
func (l *loop) requestCloseAfterEOF(c *Conn) {
	if c.handler.OnShutdown != nil {
		l.requestClose(c)
	}
}

// requestClose asks the handler to end a connection, or closes it.
func (l *loop) requestClose(c *Conn) {
	if !c.onShutdown() {
		c.mu.Lock()
		c.state.finWrite = true
		c.bstate.discard = true
		c.mu.Unlock()
	}
	l.markDirty(c)
}

// fail records that the driver has failed.
func (l *loop) fail(err error) {
	l.over, l.broken = true, err
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	if err != nil {
		l.server.opts.logger().Error("event: a loop failed; its connections end", "error", err)
	}
}

// closeAll ends the connections of a loop whose driver is broken.
func (l *loop) closeAll() {
	l.closeSockets()
	for l.registerArrivals(); !l.closeArrivals(); l.registerArrivals() {
		l.closeSockets()
		l.mu.Lock()
		l.arrivals = l.enrolled.swap(l.arrivals)
		l.mu.Unlock()
	}
	for i, c := range l.conns {
		if c == nil {
			continue
		}
		c.mu.Lock()
		c.fail(c.opError("read", l.broken))
		fd := c.bstate.fd
		c.mu.Unlock()
		// A send that is in flight must not read memory after it was returned.
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		c.setClosed()
		l.conns[i] = nil // OnClose may end the goroutine
		c.mu.Lock()
		c.bstate.fd = -1
		sending := c.out.sending
		c.mu.Unlock()
		if !sending { // otherwise the goroutine of sendFile closes it
			l.closeFD(fd, c.bstate.lingers)
		}
		l.count.open.Add(-1)
		c.onClose(c.opError("read", l.broken))
	}
	if l.listen.fd >= 0 {
		if !l.listen.shared {
			// Operations in flight may keep the socket open. Shutdown keeps clients from
			// connecting to a loop that does not serve.
			_ = syscall.Shutdown(l.listen.fd, syscall.SHUT_RDWR)
		}
		_ = syscall.Close(l.listen.fd)
		l.listen.fd = -1
	}
}

// timerHeap is a heap of the connections whose timer is set, ordered by alarm. An alarm
// is never later than its timer: extending a timer does not move its alarm, and fire
// sets a new one. Each connection has its index, and is removed when it is closed.
type timerHeap []timerEntry

type timerEntry struct {
	at time.Time
	c  *Conn
}

// set adds a connection, or moves it.
func (h *timerHeap) set(c *Conn, at time.Time) {
	if c.bstate.timerAt == 0 {
		*h = append(*h, timerEntry{at, c})
		c.bstate.timerAt = int32(len(*h))
	}
	i := int(c.bstate.timerAt) - 1
	(*h)[i].at = at
	h.fix(i)
}

// remove removes a connection, if it is in the heap.
func (h *timerHeap) remove(c *Conn) {
	i := int(c.bstate.timerAt) - 1
	if i < 0 {
		return
	}
	s := *h
	n := len(s) - 1
	s[i] = s[n]
	s[i].c.bstate.timerAt = int32(i + 1)
	s[n], c.bstate.timerAt = timerEntry{}, 0
	*h = s[:n]
	if i < n {
		h.fix(i)
	}
}

// fix moves the entry at i to its place.
func (h timerHeap) fix(i int) {
	e := h[i]
	for i > 0 {
		up := (i - 1) / 2
		if !e.at.Before(h[up].at) {
			break
		}
		h.put(i, h[up])
		i = up
	}
	for {
		down := 2*i + 1
		if down >= len(h) {
			break
		}
		if down+1 < len(h) && h[down+1].at.Before(h[down].at) {
			down++
		}
		if !h[down].at.Before(e.at) {
			break
		}
		h.put(i, h[down])
		i = down
	}
	h.put(i, e)
}

func (h timerHeap) put(i int, e timerEntry) {
	h[i] = e
	e.c.bstate.timerAt = int32(i + 1)
}

// schedule sets an alarm for the timer of a connection, which has changed. The
// caller holds the connection's mutex.
func (l *loop) schedule(c *Conn) {
	c.state.timer = false
	if c.expiry.IsZero() || c.bstate.covers(c.expiry) {
		return
	}
	c.bstate.wakeAt = c.expiry
	l.timers.set(c, c.expiry)
}

// delay makes the loop call f after a pause. f calls no callback.
func (l *loop) delay(f func()) {
	if len(l.delayed) == 0 {
		l.delayAt = time.Now().Add(retryPause)
	}
	l.delayed = append(l.delayed, f)
}

// nextTimer returns when the loop has to wake up, zero for never.
func (l *loop) nextTimer() time.Time {
	at := l.retryAt
	for _, a := range [...]time.Time{l.listen.retryAt, l.delayAt} {
		if !a.IsZero() && (at.IsZero() || a.Before(at)) {
			at = a
		}
	}
	if len(l.timers) > 0 && (at.IsZero() || l.timers[0].at.Before(at)) {
		at = l.timers[0].at
	}
	return at
}

// fireTimers handles the due alarms and reports whether there were any.
func (l *loop) fireTimers() bool {
	at := l.nextTimer()
	if at.IsZero() {
		return false
	}
	now := time.Now()
	if now.Before(at) {
		return false
	}
	if !l.retryAt.IsZero() && !now.Before(l.retryAt) {
		l.retryAt = time.Time{}
	}
	if at := l.listen.retryAt; !at.IsZero() && !now.Before(at) {
		l.d.armAccept()
	}
	if !l.delayAt.IsZero() && !now.Before(l.delayAt) {
		due := l.delayed
		l.delayed, l.delayAt = nil, time.Time{}
		for _, f := range due {
			f()
		}
	}
	for len(l.timers) > 0 && !now.Before(l.timers[0].at) {
		l.fire(l.timers[0], now)
	}
	return true
}

// fire handles a due alarm. The timer may have been stopped, or set to a later time.
func (l *loop) fire(e timerEntry, now time.Time) {
	c := e.c
	c.mu.Lock()
	l.timers.remove(c)
	due := c.takeAlarm(e.at, now)
	switch {
	case due:
		c.state.notified = true // the loop processes it in any case
	case !c.state.closed:
		l.schedule(c)
	}
	c.mu.Unlock()
	if due {
		c.onTimer()
		l.markDirty(c)
	}
}

// Package net's defaults: seconds, and a number of probes.
const (
	defaultKeepAlive      = 15
	defaultKeepAliveCount = 9
)
