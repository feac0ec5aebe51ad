// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"io"
	"math/bits"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// loop drives a set of sockets. One goroutine, the driver, asks epoll which
// sockets are ready, receives for the readers that wait, and wakes them.
type loop struct {
	system *System
	table  table
	// freeYoung is the system's, made once because it allocates.
	freeYoung func(file io.Closer)
	poll      *epoll.Instance // of the sockets
	spin      spinner

	// To sleep, the driver parks in Go's netpoller, so that no thread blocks.
	// The netpoller watches sleepPoll, which reports an event of poll once each
	// time it is armed. If the netpoller watched poll itself, every event of a
	// busy loop would wake a thread of the runtime.
	sleepPoll  *epoll.Instance
	sleeper    *ringloop.Poller
	sleepTry   func(fd uintptr) bool // reports whether sleepPoll had an event
	sleepEvent [1]epoll.Event

	// starting counts the readers that the driver has woken and that do not run
	// yet, plus one for the driver itself. While the driver waits, it is less by
	// one and by mayBeLate. The reader that takes it to zero sends to running.
	starting  atomic.Int32
	running   chan struct{}
	mayBeLate int32 // the driver goes on when at most so many readers do not run yet: one for each P, at most fewEvents

	passing sync.Mutex  // held during a pass, by the driver or by a call that helps it
	driving bool        // the pass is the driver's; guarded by passing
	wanted  atomic.Bool // a call wants a pass; see help
	starved atomic.Bool // see yielded
	long    uint8       // of the last eight yields of the driver: 1 for a long one

	lastLong, starvedUntil time.Time

	useRing bool
	ring    *uring.Ring // opened for the first batch
	batch   []receive
	cqes    []uring.CQE
	events  []epoll.Event

	stopping atomic.Bool
	done     sync.WaitGroup

	count counters
}

// counters are the counters of one loop.
type counters struct {
	passes, helped, events, receives, ring, enters, sleeps atomic.Uint64
}

func (l *loop) stats() Stats {
	c := &l.count
	return Stats{
		Passes: c.passes.Load(), Helped: c.helped.Load(), Events: c.events.Load(), Receives: c.receives.Load(),
		Ring: c.ring.Load(), Enters: c.enters.Load(), Sleeps: c.sleeps.Load(),
	}
}

// maxBatch is how many events one pass handles at most, and the size of the ring. With
// larger passes more readers wait for their data when the kernel preempts the
// driver.
const maxBatch = 32

func newLoop(s *System) (*loop, error) {
	l := &loop{system: s, useRing: s.mode == ModeRing, spin: spinner{limit: s.opts.spin()},
		events: make([]epoll.Event, maxBatch), running: make(chan struct{}, 1), mayBeLate: int32(min(runtime.GOMAXPROCS(0), fewEvents))}
	l.starting.Store(1)
	l.sleepTry = func(uintptr) bool {
		n, errno := l.sleepPoll.PollSockets(l.sleepEvent[:])
		return n > 0 || errno != 0 // after an error no event would follow: make a pass
	}
	if err := l.open(); err != nil {
		_ = l.free() // the first error counts
		return nil, err
	}
	l.done.Go(l.drive)
	return l, nil
}

func (l *loop) open() (err error) {
	if l.poll, err = epoll.Open(); err != nil {
		return syscallError("epoll_create1", err)
	}
	if l.sleepPoll, err = epoll.Open(); err != nil {
		return syscallError("epoll_create1", err)
	}
	if errno := l.sleepPoll.Add(l.poll.FD(), epoll.OneShot, 0); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	if l.sleeper, err = ringloop.NewPoller(l.sleepPoll.FD(), "epoll"); err != nil {
		return syscallError("dup", err)
	}
	return nil
}

// close stops the driver and frees everything. No socket may be left.
func (l *loop) close() error {
	l.stopping.Store(true)
	err := l.sleeper.SetDeadline(time.Unix(1, 0)) // wakes a driver that sleeps
	l.done.Wait()
	return errors.Join(err, l.free())
}

// free closes what open opened, also if that failed half-way.
func (l *loop) free() error {
	var errs []error
	if l.ring != nil {
		errs = append(errs, l.ring.Close())
	}
	if l.sleeper != nil {
		errs = append(errs, l.sleeper.Close())
	}
	for _, p := range []*epoll.Instance{l.sleepPoll, l.poll} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// drive is the driver's goroutine.
func (l *loop) drive() {
	for !l.stopping.Load() {
		if l.pass() > 0 {
			l.waitForReaders()
			if !l.spin.alone() {
				continue
			}
		}
		if l.starved.Load() {
			l.yield(time.Now())
		} else if !l.spinForWork() {
			l.sleep()
		}
	}
}

// waitForReaders lets the readers that the driver has woken run. If many of them do not
// run yet when the driver runs again, their P is occupied by a goroutine that computes,
// or its thread was preempted. No other P steals from their queue while the driver is
// runnable, so the driver blocks until at most mayBeLate of them do not run. If it
// waited for the last one, Ps would be idle meanwhile.
func (l *loop) waitForReaders() {
	l.yield(time.Now())
	if l.starting.Load() > fewEvents+1 && !l.starved.Load() {
		if l.starting.Add(-1-l.mayBeLate) > 0 {
			<-l.running
		}
		l.starting.Add(1 + l.mayBeLate)
	}
}

// yield lets other goroutines run and returns the time afterwards. now is the time before.
func (l *loop) yield(now time.Time) time.Time {
	runtime.Gosched()
	after := time.Now()
	l.yielded(after, after.Sub(now))
	return after
}

// yielded records that a yield of the driver ended at now and took d. A yield that takes
// much longer than the woken readers need means that goroutines compute on every P:
// each of them runs for 10 ms, and the driver waits until one of these slices ends. The
// slices of several Ps end at different times, so short waits follow long ones. The loop
// is starved after a few long yields among the last eight: a single one may only mean
// that another process had the processor. For a while after that one is enough. The loop
// is starved until no yield has been long for the length of two slices. A starved
// driver does not sleep: the runtime polls the netpoller, which would wake the driver,
// only every 10 ms and then queues it last again.
func (l *loop) yielded(now time.Time, d time.Duration) {
	l.long <<= 1
	if d > ringloop.LongYield {
		l.long |= 1
		l.lastLong = now
	}
	switch {
	case l.starved.Load():
		if now.Sub(l.lastLong) > starvedSpan {
			l.starved.Store(false)
			l.long, l.starvedUntil = 0, now
		}
	case bits.OnesCount8(l.long) >= longYields, d > ringloop.LongYield && now.Sub(l.starvedUntil) < againSpan:
		l.starved.Store(true)
	}
}

const (
	longYields  = 3
	starvedSpan = 20 * time.Millisecond
	againSpan   = time.Second
)

// help makes a pass instead of a starved driver. A call that is about to wait
// calls it, because its P would run a computing goroutine next. If a pass is in
// progress, it may have polled too early for this call; its goroutine then makes
// another pass.
func (l *loop) help() {
	l.wanted.Store(true)
	for l.wanted.Load() && l.passing.TryLock() {
		l.wanted.Store(false)
		l.driving = false
		l.passLocked()
		l.passing.Unlock()
	}
}

// readerRuns records that a reader that the driver has woken runs.
func (l *loop) readerRuns() {
	if l.starting.Add(-1) == 0 {
		l.running <- struct{}{}
	}
}

// pass handles the pending events and returns their number.
func (l *loop) pass() int {
	l.passing.Lock()
	l.driving = true
	n := l.passLocked()
	if n > 0 {
		key := epoll.Data(&l.events[0])
		if l.spin.found(n, key); l.spin.alone() {
			l.offerAlone(key)
		}
	}
	l.passing.Unlock()
	if l.wanted.Load() {
		l.help()
	}
	return n
}

// passLocked is pass for a caller that holds passing.
func (l *loop) passLocked() int {
	n, errno := l.poll.PollSockets(l.events)
	if errno != 0 && errno != syscall.EINTR {
		panic("unet: epoll_pwait: " + errno.Error()) // our own descriptor and memory
	}
	if n == 0 {
		return 0
	}
	l.count.passes.Add(1)
	if !l.driving {
		l.count.helped.Add(1)
	}
	l.count.events.Add(uint64(n))
	l.collect(l.events[:n])
	l.receive()
	if n > 1 {
		keepOrder()
	}
	return n
}

// keepOrder lets the goroutines that were woken run in the order in which they were. The runtime
// runs the goroutine that became runnable last first; now that is one that ends at once.
func keepOrder() { go func() {}() }

// collect updates the sockets of the events and gathers the receives of the
// readers that wait.
func (l *loop) collect(events []epoll.Event) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	others := false
	for i := range events {
		key := epoll.Data(&events[i])
		if s := l.table.find(key); s != nil {
			l.notice(s, events[i].Events)
			others = others || key != l.table.alone
		}
	}
	if others && l.table.alone != 0 {
		l.othersActive()
	}
}

// notice handles the events of one socket: a waiting Read joins the receives of this pass; calls
// without a buffer are woken.
func (l *loop) notice(s *sock, events uint32) {
	const failed = syscall.EPOLLERR | syscall.EPOLLHUP
	if events&(failed|syscall.EPOLLRDHUP|syscall.EPOLLPRI) != 0 {
		s.moreLikely.Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|failed) != 0 {
		if h := &s.rd; h.state == parked && s.in.buf != nil {
			h.state = taken
			l.batch = append(l.batch, receive{s, s.in.buf})
		} else {
			h.becomeReady(s)
		}
	}
	if events&(syscall.EPOLLOUT|failed) != 0 {
		s.wr.becomeReady(s)
	}
}

// sleep waits in the netpoller for the next event.
func (l *loop) sleep() {
	if errno := l.sleepPoll.Modify(l.poll.FD(), syscall.EPOLLIN|epoll.OneShot, 0); errno != 0 {
		panic("unet: epoll_ctl: " + errno.Error()) // our own descriptors
	}
	l.count.sleeps.Add(1)
	_ = l.sleeper.Wait(l.sleepTry) // an error means that the loop stops
}

// spinForWork polls for a short time and reports whether it found and handled
// events.
func (l *loop) spinForWork() bool {
	if !l.spin.worthwhile() {
		return false
	}
	start := time.Now()
	for now := start; ; {
		now = l.yield(now)
		if l.pass() > 0 {
			l.spin.hit()
			return true
		}
		if now.Sub(start) > l.spin.limit {
			l.spin.missed()
			return false
		}
	}
}

// spinner decides whether to poll for a while before sleeping. That pays when few
// connections are active and the next message of a peer arrives soon. It does not pay for
// a single connection: the kernel often runs both ends of it on one processor, which costs
// least, and a driver that polls keeps the peer off that processor.
type spinner struct {
	limit time.Duration
	small bool   // the last pass had few events
	skip  int    // how many opportunities to spin are still to be skipped
	pause int    // how many were skipped after the last miss
	key   uint64 // of the socket of the last pass
	same  int    // how many passes in a row had one event, of that socket
}

// aloneAfter is the number of passes in a row with one socket that mean that no other is
// active.
const aloneAfter = 16

// alone reports whether only one socket is active.
func (s *spinner) alone() bool { return s.same >= aloneAfter }

// fewEvents is the largest pass after which the driver spins: after a larger one
// there are goroutines to run. It is also how many woken readers may be late without
// the driver blocking for them.
const fewEvents = 4

const longestPause = 64

// worthwhile reports whether to spin now.
func (s *spinner) worthwhile() bool {
	if s.limit <= 0 || !s.small || s.alone() {
		return false
	}
	if s.skip > 0 {
		s.skip--
		return false
	}
	return true
}

// found records the size of a pass and its first socket. It does not reset the pause
// after misses: slow, regular events come too late for spinning.
func (s *spinner) found(n int, key uint64) {
	s.small = n <= fewEvents
	if n == 1 && key == s.key {
		s.same++
	} else {
		s.key, s.same = key, 0
	}
}

// hit records that a spin ended with events.
func (s *spinner) hit() { s.pause = 0 }

// missed records a spin without events.
func (s *spinner) missed() {
	s.pause = min(2*s.pause+1, longestPause)
	s.skip = s.pause
}

// receive is a receive that the loop makes for a reader that waits. The reader
// stays in its call until the receive has ended, so the socket stays open and the
// buffer valid.
type receive struct {
	sock *sock
	buf  []byte
}

// maxBrief is how many bytes a batch may receive without telling the scheduler.
const maxBrief = 256 << 10

// receive makes the receives of the batch.
func (l *loop) receive() {
	if len(l.batch) == 0 {
		return
	}
	l.count.receives.Add(uint64(len(l.batch)))
	if len(l.batch) > 1 && l.useRing && l.openRing() {
		l.receiveRing()
	} else {
		l.receivePlain()
	}
	clear(l.batch)
	l.batch = l.batch[:0]
}

func (l *loop) receivePlain() {
	for _, r := range l.batch {
		if r.sock == nil {
			continue
		}
		n, errno := sys.SockRecv(r.sock.fd.Int(), r.buf, sys.MsgDontWait)
		r.sock.received(l, n, errno)
	}
}

// openRing opens the ring for the first batch and reports whether there is one. If
// opening fails, as for lack of memory or descriptors, plain calls are made instead.
func (l *loop) openRing() bool {
	if l.ring != nil {
		return true
	}
	o := uring.Options{Entries: maxBatch, SubmitAll: true}
	if l.system.opts.Restrict {
		o.Restrict = &uring.Restrictions{Ops: []uring.Op{uring.OpRecv}}
	}
	r, err := uring.Open(o)
	if err != nil {
		o.SubmitAll = false // before 5.18
		r, err = uring.Open(o)
	}
	if err != nil {
		l.useRing = false
		l.system.lostRing(err)
		return false
	}
	l.ring, l.cqes = r, make([]uring.CQE, maxBatch)
	return true
}

// receiveRing makes all receives in one system call. None of them waits for data,
// so all are complete when it returns.
func (l *loop) receiveRing() {
	bytes := 0
	for i, r := range l.batch {
		l.ring.SQE().Recv(uring.Fd(r.sock.fd.Int()), r.buf, sys.MsgDontWait).Raw().UserData = uint64(i)
		bytes += len(r.buf)
	}
	for left := len(l.batch); left > 0; {
		_, err := l.ring.Wait(uring.WaitOptions{Count: left, Brief: bytes <= maxBrief})
		l.count.enters.Add(1)
		n := l.ring.Reap(l.cqes)
		l.count.ring.Add(uint64(n))
		for _, c := range l.cqes[:n] {
			l.finishReceive(c)
		}
		left -= n
		if err != nil && left > 0 && !l.ringGoesOn(&left, err) {
			return
		}
	}
}

// finishReceive gives the result of a completion to its reader.
func (l *loop) finishReceive(c uring.CQE) {
	r := &l.batch[c.UserData]
	r.sock.received(l, int(max(c.Res, 0)), c.Errno())
	*r = receive{}
}

// ringGoesOn reports whether to continue with the ring after a failed call. Entries that
// the kernel has taken will complete. Once only untaken entries are left, it closes the
// ring and makes their receives with plain calls.
func (l *loop) ringGoesOn(left *int, err error) bool {
	if *left > l.ring.Pending() {
		return true // the kernel has taken some: wait for them
	}
	_ = l.ring.Close() // nothing is in flight
	l.ring, l.useRing = nil, false
	l.system.lostRing(err)
	l.receivePlain()
	return false
}

// table finds the socket of an event. The user data of an event is an index with
// a generation: an event of a closed socket finds nothing, even if another socket
// has the index now. The table does not keep sockets alive, so that a socket that
// is dropped without Close can be collected.
type table struct {
	mu    sync.Mutex
	slots []tableSlot
	free  []uint32
	alone uint64 // the key of the socket that may wait alone, 0 for none
	calls uint64 // of crowded
}

type tableSlot struct {
	generation uint32
	sock       weak.Pointer[sock]
}

// add enters a socket, and stores and returns its key.
func (t *table) add(s *sock) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addLocked(s)
}

// addLocked is add for a caller that holds mu.
func (t *table) addLocked(s *sock) uint64 {
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

// crowded reports whether the loop watches a socket, or another young one has called it since the
// last call of this one.
func (t *table) crowded(a *alone) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	others := a.call != 0 && a.call+1 != t.calls
	a.call = t.calls
	return others || len(t.free) < len(t.slots)
}

// remove forgets a socket.
func (t *table) remove(key uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := &t.slots[uint32(key)]
	slot.generation++
	slot.sock = weak.Pointer[sock]{}
	t.free = append(t.free, uint32(key))
	if t.alone == key {
		t.alone = 0
	}
}

// find returns the socket of a key, nil if it was closed. The caller holds mu.
func (t *table) find(key uint64) *sock {
	if i := uint32(key); int(i) < len(t.slots) && t.slots[i].generation == uint32(key>>32) {
		return t.slots[i].sock.Value()
	}
	return nil
}
