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

// sock is a non-blocking descriptor that a loop watches.
type sock struct {
	fd   *sys.FD
	loop *loop
	key  uint64
	lock fdlock.Lock // the users of the descriptor

	mu       sync.Mutex
	closing  bool // guarded by mu
	watchOut bool // guarded by mu: events of writing are watched
	// moreLikely is set when more data may follow a short receive: the peer has
	// closed or failed, the socket keeps message boundaries, or other code has used
	// the descriptor.
	moreLikely atomic.Bool
	rd, wr     direction
	in         delivery
	clock      deadlines
	drop       runtime.Cleanup // see closeDropped
}

// direction is the state of reading from, or writing to, a socket.
type direction struct {
	turn    sync.Mutex  // held by the one call that is in progress
	ready   atomic.Bool // a system call may succeed
	expired atomic.Bool // the deadline has passed
	state   waitState   // guarded by the socket's mu
	// wake has a capacity of 1 and gets one value for each wait. A WaitGroup
	// takes less memory but wakes more slowly.
	wake chan struct{}
}

type waitState uint8

const (
	idle   waitState = iota
	parked           // a call waits; the goroutine that sets idle wakes it
	taken            // the loop receives for the reader; only the loop changes the state
)

// delivery passes a buffer from a waiting reader to the loop and the result back.
// It belongs to the loop while the state is taken, otherwise to the reader.
type delivery struct {
	buf   []byte // where to receive; nil if the reader receives for itself
	n     int
	errno uint32 // a syscall.Errno in less space
	done  bool   // n and errno are the result of a receive into buf
	// counted is set if the loop counts the reader in starting.
	counted bool
}

// watched are the events that are watched of every socket.
const watched = syscall.EPOLLIN | syscall.EPOLLRDHUP | syscall.EPOLLPRI | epoll.EdgeTriggered

// open begins to watch a descriptor. It takes ownership of it, even on failure.
func (s *sock) open(system *System, fd int) error {
	l, err := system.acquire()
	if err != nil {
		_ = syscall.Close(fd) // the first error counts
		return err
	}
	return s.watch(l, fd)
}

// watchCopyOf begins to watch a duplicate of the descriptor of a socket of package net.
// After a success the caller closes old, so that only one poller watches the socket. On
// failure old is unchanged.
func (s *sock) watchCopyOf(system *System, old syscall.Conn) error {
	l, err := system.acquire()
	if err != nil {
		return err
	}
	fd, err := dupConn(old)
	if err != nil {
		system.release()
		return err
	}
	return s.watch(l, fd)
}

// watch is open on a loop that the caller has acquired.
func (s *sock) watch(l *loop, fd int) error {
	s.fd = sys.NewFD(fd)
	s.loop = l
	l.table.add(s)
	if errno := l.poll.Add(fd, watched, s.key); errno != 0 {
		l.table.remove(s.key)
		l.system.release()
		_ = s.fd.Close()
		return os.NewSyscallError("epoll_ctl", errno)
	}
	return nil
}

// close ends all calls that wait, waits until the last one has returned, and
// closes the descriptor.
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
	s.lock.CloseAcrossBubbles()
	s.drop.Stop()
	return resources{s.fd, s.loop, s.key}.free()
}

// resources are held by a socket, which must free them.
type resources struct {
	fd   *sys.FD
	loop *loop
	key  uint64
}

func (r resources) free() error {
	r.loop.table.remove(r.key)
	r.loop.poll.Remove(r.fd.Int()) // a duplicate of the descriptor may keep the socket open
	err := r.fd.Close()
	r.loop.system.release()
	return err
}

// closeDropped has the garbage collector close the socket of a connection or
// listener that the program drops without Close, as package net does. It sets a
// cleanup because the program may set a finalizer. The file of a Unix listener
// stays.
func closeDropped[T any](whole *T, s *sock) {
	s.drop = runtime.AddCleanup(whole, freeDropped, resources{s.fd, s.loop, s.key})
}

func freeDropped(r resources) {
	go func() { _ = r.free() }() // free may wait for the driver, and cleanups must not
}

// interrupt wakes the call that waits, without a result. If the loop receives for
// it, the loop wakes it in a moment. The caller holds the socket's mu.
func (h *direction) interrupt() {
	if h.state == parked {
		h.finish()
	}
}

// finish ends a wait. The caller holds the socket's mu.
func (h *direction) finish() {
	h.state = idle
	h.wake <- struct{}{}
}

// begin starts a call in one direction. If it returns nil, end must follow.
func (s *sock) begin(h *direction) error {
	if !s.lock.Acquire() {
		return net.ErrClosed
	}
	h.turn.Lock()
	return nil
}

func (s *sock) end(h *direction) {
	h.turn.Unlock()
	s.lock.Release()
}

// check returns the error of a call that must end because the socket is closing or
// the deadline has passed.
func (s *sock) check(h *direction) error {
	if s.lock.Closed() {
		return net.ErrClosed
	}
	if h.expired.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait blocks until the direction is ready, the call must end (see check), or the
// loop has received into buf; received reports the last. It may also return
// without any of these. The caller holds the turn.
func (s *sock) wait(h *direction, buf []byte) (received bool, err error) {
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
		s.loop.readerRuns()
	}
	return s.in.done, nil
}

// waitWritable is wait for writing. A socket is watched for writing only after its first
// wait: many sockets never fill up, and Unix sockets would report each message that the
// peer reads.
func (s *sock) waitWritable() error {
	s.mu.Lock()
	if !s.watchOut && !s.closing {
		s.watchOut = true
		if errno := s.loop.poll.Modify(s.fd.Int(), watched|syscall.EPOLLOUT, s.key); errno != 0 {
			s.watchOut = false
			s.mu.Unlock()
			return os.NewSyscallError("epoll_ctl", errno)
		}
	}
	s.mu.Unlock()
	_, err := s.wait(&s.wr, nil)
	return err
}

// deadlines are the two deadlines of a socket and the timer of the nearer one.
// Extending a deadline, as a server with timeouts does for each request, does not
// reset the timer; tick re-arms it. The socket's mu guards them.
type deadlines struct {
	read, write int64 // since epoch, 0 for none
	armed       int64 // when the timer fires, 0 when it does not
	timer       *time.Timer
}

var epoch = time.Now()

// sinceEpoch returns the time since epoch of a deadline that is in left from now.
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

// setDeadline sets the deadline of reading, of writing, or of both. It also affects calls
// that already wait.
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

// setBubbled is setDeadline in a bubble; left is the time until the deadline on its clock.
func (s *sock) setBubbled(left time.Duration, read, write bool) (err error) {
	outside(func() { err = s.setWhen(sinceEpoch(time.Now(), left), read, write) })
	return err
}

// setWhen is setDeadline for a time since epoch: 0 means none, a negative value one
// that has passed.
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

// expire records whether the deadline has passed. The caller holds the socket's mu.
func (h *direction) expire(passed bool) {
	h.expired.Store(passed)
	if passed {
		h.interrupt()
	}
}

// arm makes the timer fire no later than when, if that is positive. The caller
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
	self := weak.Make(s) // the timer must not keep a dropped socket alive
	d.timer = time.AfterFunc(left, func() {
		if s := self.Value(); s != nil {
			s.tick()
		}
	})
}

// tick expires deadlines that have passed and re-arms the timer for the others.
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

// table finds the socket of an event. The user data of an event is an index with
// a generation: an event of a closed socket finds nothing, even if another socket
// has the index now. The table does not keep sockets alive, so that a socket that
// is dropped without Close can be collected.
type table struct {
	mu    sync.Mutex
	slots []tableSlot
	free  []uint32
}

type tableSlot struct {
	generation uint32
	sock       weak.Pointer[sock]
}

// add enters a socket, and stores and returns its key.
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
	s.key = uint64(t.slots[i].generation)<<32 | uint64(i) // under mu, for the driver that finds s
	return s.key
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

// find returns the socket of a key, nil if it was closed. The caller holds mu.
func (t *table) find(key uint64) *sock {
	if i := uint32(key); int(i) < len(t.slots) && t.slots[i].generation == uint32(key>>32) {
		return t.slots[i].sock.Value()
	}
	return nil
}
