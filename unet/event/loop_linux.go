// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// loop is a listening socket and its connections: it runs turns, in each of which it handles
// what the driver has found, the inbox, the connections that are marked, and the alarms. The
// driver is the way to the kernel, a ring or epoll; the loop works the same way with both.
// With ModeNet there are no loops: a goroutine serves each connection. Fields belong to the goroutine in driver.run unless their comment differs.
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

	slots
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

// registerArrivals registers the connections that were enrolled.
func (l *loop) registerArrivals() {
	for !l.enrolled.empty() {
		l.register(l.enrolled.pop())
	}
}

// idle implements backend.
func (l *loop) idle() bool { return l.d.idle() }

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
	l.slots.remove(c)
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
	l.slots.add(c)
	l.count.open.Add(1)
	c.onOpen()
	if l.leaving {
		l.shutdownConn(c)
	}
	l.markDirty(c)
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
