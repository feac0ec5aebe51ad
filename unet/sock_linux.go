// SPDX-License-Identifier: MIT

package unet

import (
	"math"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/fdlock"
	"github.com/ringside-io/ringside/internal/sys"
)

// sock is a descriptor that a loop watches. It does not block.
type sock struct {
	fd   *sys.FD
	loop *loop
	key  uint64
	lock fdlock.Lock // who uses the descriptor

	mu       sync.Mutex
	closing  bool // guarded by mu
	watchOut bool // guarded by mu: the loop reports when it can be written to
	datagram bool // set once
	muted    bool // guarded by mu: the loop does not report when it can be read; see mute
	// wary sockets may hold more after a short receive: the peer has closed or
	// failed, the socket keeps borders between messages, or somebody has had
	// the descriptor in hand.
	wary   atomic.Bool
	rd, wr half
	in     delivery
	clock  deadlines
	drop   runtime.Cleanup // see closeDropped
}

// half is one direction of a socket: who waits for it and what is known.
type half struct {
	turn    sync.Mutex  // held by the one call that is under way
	ready   atomic.Bool // worth a try
	expired atomic.Bool // the deadline has passed
	state   waitState   // guarded by the socket's mu
	// wake, of capacity 1, gets one value for each wait. A WaitGroup would do
	// the same in less memory, and wakes more slowly.
	wake chan struct{}
}

type waitState uint8

const (
	idle   waitState = iota
	parked           // waits; whoever sets idle wakes
	taken            // the loop receives for the reader; it alone may change the state
)

// delivery is what a reader that waits and the loop tell each other. It is the
// loop's while the state is taken, otherwise the reader's.
type delivery struct {
	buf   []byte // where to receive, nil to be told of readiness only
	n     int
	errno uint32 // a syscall.Errno in less space
	done  bool   // n and errno are the result of a receive into buf
	// counted is set when the loop counts the reader in woken.
	counted bool
}

// watched are the events that every socket reports.
const watched = syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLPRI | epoll.EdgeTriggered

// events returns what the loop shall report. The caller holds mu.
func (s *sock) events() uint32 {
	events := uint32(watched)
	if s.muted {
		events = epoll.EdgeTriggered
	}
	if s.watchOut {
		events |= syscall.EPOLLOUT
	}
	return events
}

// mute stops reports of datagrams whose reader does not wait, of which there is
// one for each. The next call that waits undoes it. The caller holds mu.
func (s *sock) mute() {
	s.muted = true
	if errno := s.loop.poll.Modify(s.fd.Int(), s.events(), s.key); errno != 0 {
		s.muted = false
	}
}

// open begins to watch a descriptor, which it owns from now on, also when it
// fails.
func (s *sock) open(system *System, fd int) error {
	l, err := system.acquire()
	if err != nil {
		_ = syscall.Close(fd) // the first error counts
		return err
	}
	return s.attach(l, fd)
}

// takeOver begins to watch a copy of the descriptor of a socket of package net's
// and closes that, so that one poller is left to watch the socket. When it fails,
// old is as it was.
func (s *sock) takeOver(system *System, old syscall.Conn) error {
	l, err := system.acquire()
	if err != nil {
		return err
	}
	fd, err := dupConn(old)
	if err != nil {
		system.release()
		return err
	}
	return s.attach(l, fd)
}

// attach begins to watch a descriptor, which it owns from now on, also when it
// fails. The loop has been acquired.
func (s *sock) attach(l *loop, fd int) error {
	s.fd = sys.NewFD(fd)
	s.loop = l
	s.key = l.table.add(s)
	if errno := l.poll.Add(fd, watched, s.key); errno != 0 {
		l.table.remove(s.key)
		l.system.release()
		_ = s.fd.Close()
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// close ends the calls that wait, waits until the last one has left, and closes
// the descriptor.
func (s *sock) close() error {
	s.mu.Lock()
	if s.closing {
		s.mu.Unlock()
		return net.ErrClosed
	}
	s.closing = true
	s.rd.interrupt()
	s.wr.interrupt()
	s.clock.stop()
	s.mu.Unlock()
	s.lock.Close()
	s.drop.Stop()
	return resources{s.fd, s.loop, s.key}.free()
}

// resources are what a socket must give back.
type resources struct {
	fd   *sys.FD
	loop *loop
	key  uint64
}

func (r resources) free() error {
	r.loop.table.remove(r.key)
	r.loop.poll.Remove(r.fd.Int()) // a copy of the descriptor may keep the socket open
	err := r.fd.Close()
	r.loop.system.release()
	return err
}

// closeDropped arranges that the socket of a connection or listener that is
// dropped without Close is closed by the garbage collector, as in package net.
// It is a cleanup and not a finalizer, which the program may set itself. The
// file of a listener stays.
func closeDropped[T any](whole *T, s *sock) {
	s.drop = runtime.AddCleanup(whole, freeDropped, resources{s.fd, s.loop, s.key})
}

func freeDropped(r resources) {
	go func() { _ = r.free() }() // it may wait for the driver
}

// interrupt wakes the waiter without a result. One whose receive is under way
// is woken by the loop at once. The caller holds the socket's mu.
func (h *half) interrupt() {
	if h.state == parked {
		h.finish()
	}
}

// finish ends a wait. The caller holds the socket's mu.
func (h *half) finish() {
	h.state = idle
	h.wake <- struct{}{}
}

// begin starts a call in one direction: end must follow when it returns nil.
func (s *sock) begin(h *half) error {
	if !s.lock.Acquire() {
		return net.ErrClosed
	}
	h.turn.Lock()
	return nil
}

func (s *sock) end(h *half) {
	h.turn.Unlock()
	s.lock.Release()
}

// check says why a call must not go on: the socket is closing or the deadline
// has passed.
func (s *sock) check(h *half) error {
	if s.lock.Closed() {
		return net.ErrClosed
	}
	if h.expired.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait parks the caller, who has the turn, until the direction is ready, the
// call must not go on (see check), or data was received into buf, which it
// reports. It may return early without any of these.
func (s *sock) wait(h *half, buf []byte) (received bool, err error) {
	s.mu.Lock()
	switch {
	case s.closing:
		s.mu.Unlock()
		return false, net.ErrClosed
	case h.expired.Load():
		s.mu.Unlock()
		return false, os.ErrDeadlineExceeded
	case h.ready.Load():
		s.mu.Unlock()
		return false, nil
	}
	if h == &s.rd {
		s.in = delivery{buf: buf}
	}
	h.state = parked
	if h.wake == nil {
		h.wake = newWake()
	}
	if h == &s.rd && s.muted {
		s.muted = false
		s.loop.poll.Modify(s.fd.Int(), s.events(), s.key) // which reports what is there already
	}
	s.mu.Unlock()
	if s.loop.starved.Load() {
		s.loop.help()
	}
	<-h.wake
	if h != &s.rd {
		return false, nil
	}
	s.in.buf = nil
	if s.in.counted {
		s.loop.begun()
	}
	return s.in.done, nil
}

// waitWritable is wait for the direction of writing, which is watched from the
// first time on that somebody has to wait: many sockets never fill up, and
// those of the Unix family would report each message that the peer takes.
func (s *sock) waitWritable() error {
	s.mu.Lock()
	if !s.watchOut && !s.closing {
		s.watchOut = true
		if errno := s.loop.poll.Modify(s.fd.Int(), s.events(), s.key); errno != 0 {
			s.watchOut = false
			s.mu.Unlock()
			return os.NewSyscallError("epoll_ctl", errno)
		}
	}
	s.mu.Unlock()
	_, err := s.wait(&s.wr, nil)
	return err
}

// deadlines are the two deadlines of a socket and the timer that watches the
// nearer one. A deadline that moves away, as it does with each request of a
// server with timeouts, leaves the timer alone: it finds out when it fires.
// Guarded by the socket's mu.
type deadlines struct {
	read, write int64 // since epoch, 0 for none
	armed       int64 // when the timer fires, 0 when it does not
	timer       *time.Timer
}

var epoch = time.Now()

// sinceEpoch converts a deadline, of which some time is left, to its time since
// epoch.
func sinceEpoch(now time.Time, left time.Duration) int64 {
	passed := now.Sub(epoch)
	if left > math.MaxInt64-passed {
		return math.MaxInt64
	}
	return int64(passed + left)
}

func (d *deadlines) stop() {
	if d.timer != nil {
		d.timer.Stop()
	}
}

// setDeadline sets the deadlines of the directions that are asked for. It takes
// effect for calls that wait, too.
func (s *sock) setDeadline(t time.Time, read, write bool) error {
	now := time.Now()
	switch left := t.Sub(now); {
	case t.IsZero():
		return s.setWhen(0, read, write)
	case left <= 0:
		return s.setWhen(-1, read, write)
	case bubbled(now):
		return s.setBubbled(left, read, write)
	default:
		return s.setWhen(sinceEpoch(now, left), read, write)
	}
}

// setBubbled is setDeadline for a time that is left of a bubble's clock.
func (s *sock) setBubbled(left time.Duration, read, write bool) (err error) {
	outside(func() { err = s.setWhen(sinceEpoch(time.Now(), left), read, write) })
	return err
}

// setWhen is setDeadline with a time since epoch: 0 for none, a negative value for
// one that has passed.
func (s *sock) setWhen(when int64, read, write bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return net.ErrClosed
	}
	if read {
		s.clock.read = max(when, 0)
		s.rd.expire(when < 0)
	}
	if write {
		s.clock.write = max(when, 0)
		s.wr.expire(when < 0)
	}
	s.arm(when)
	return nil
}

// expire notes whether the deadline has passed. The caller holds the socket's mu.
func (h *half) expire(passed bool) {
	h.expired.Store(passed)
	if passed {
		h.interrupt()
	}
}

// arm makes the timer fire no later than when, if that is a time. The caller
// holds mu.
func (s *sock) arm(when int64) {
	d := &s.clock
	if when <= 0 || d.armed != 0 && d.armed <= when {
		return
	}
	d.armed = when
	left := time.Duration(when) - time.Since(epoch)
	if d.timer != nil {
		d.timer.Reset(left)
		return
	}
	self := weak.Make(s) // a timer must not keep a dropped socket open
	d.timer = time.AfterFunc(left, func() {
		if s := self.Value(); s != nil {
			s.tick()
		}
	})
}

// tick runs when the timer fires.
func (s *sock) tick() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return
	}
	d, now := &s.clock, int64(time.Since(epoch))
	d.armed = 0
	if d.read != 0 && d.read <= now {
		d.read = 0
		s.rd.expire(true)
	}
	if d.write != 0 && d.write <= now {
		d.write = 0
		s.wr.expire(true)
	}
	s.arm(d.read)
	s.arm(d.write)
}

// table finds the socket of an event. What the kernel gives back is an index
// with a generation: an event of a socket that was closed finds nothing, even
// when the index has been given to another. The table does not keep sockets
// alive, so that one that is dropped without Close can be collected.
type table struct {
	mu    sync.Mutex
	slots []tableSlot
	free  []uint32
}

type tableSlot struct {
	generation uint32
	sock       weak.Pointer[sock]
}

// add enters a socket and returns its key.
func (t *table) add(s *sock) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.free) == 0 {
		t.slots = append(t.slots, tableSlot{generation: 1})
		t.free = append(t.free, uint32(len(t.slots)-1))
	}
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	t.slots[i].sock = weak.Make(s)
	return uint64(t.slots[i].generation)<<32 | uint64(i)
}

// remove forgets a socket.
func (t *table) remove(key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.slots[uint32(key)]
	slot.generation++
	slot.sock = weak.Pointer[sock]{}
	t.free = append(t.free, uint32(key))
}

// find returns the socket of a key, nil when it has gone. The caller holds mu.
func (t *table) find(key uint64) *sock {
	if i := uint32(key); int(i) < len(t.slots) && t.slots[i].generation == uint32(key>>32) {
		return t.slots[i].sock.Value()
	}
	return nil
}
