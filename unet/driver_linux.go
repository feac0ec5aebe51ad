// SPDX-License-Identifier: MIT

package unet

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// loop drives the sockets that were given to it: one goroutine learns what is
// ready, receives for the readers that wait, and wakes them.
type loop struct {
	system *System
	table  table
	poll   *epoll.Instance // of the sockets
	spin   spinner

	// To sleep, the driver parks in Go's netpoller, so that no thread blocks.
	// The netpoller watches gate, which reports poll once for each time that
	// it was armed: watching poll itself would wake a thread of the runtime
	// with each event of a busy loop.
	gate       *epoll.Instance
	gatePoller *ringloop.Poller
	gateTry    func(fd uintptr) bool // whether something has been reported
	gateOne    [1]epoll.Event

	// woken counts the readers that have their data and do not run yet, and
	// the driver as one. Who takes it to zero lets a driver go on that waits
	// for settled.
	woken   atomic.Int32
	settled chan struct{}

	passing sync.Mutex  // held by a pass: of the driver or of a call that helps it
	driving bool        // the pass is the driver's; guarded by passing
	wanted  atomic.Bool // a call asks for a pass; see help
	starved atomic.Bool // see stoodBack
	wasLong bool        // the driver was away for long the last inARow times
	inARow  int

	useRing bool
	ring    *uring.Ring // opened when it is first of use
	batch   []receive
	cqes    []uring.CQE
	events  []epoll.Event

	stopping atomic.Bool
	done     sync.WaitGroup
}

// maxBatch is how many events are taken at once, and the size of the ring. A
// driver that takes more keeps more readers from what has come for them when
// the system takes its processor away.
const maxBatch = 32

func newLoop(s *System) (*loop, error) {
	l := &loop{system: s, useRing: s.mode == ModeRing, spin: spinner{limit: s.opts.spin()},
		events: make([]epoll.Event, maxBatch), settled: make(chan struct{}, 1)}
	l.woken.Store(1)
	l.gateTry = func(uintptr) bool {
		n, errno := l.gate.PollSockets(l.gateOne[:])
		return n > 0 || errno != 0 // it is not told again: look
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
	if l.gate, err = epoll.Open(); err != nil {
		return syscallError("epoll_create1", err)
	}
	if errno := l.gate.Add(l.poll.FD(), epoll.OneShot, 0); errno != 0 {
		return os.NewSyscallError("epoll_ctl", errno)
	}
	if l.gatePoller, err = ringloop.NewPoller(l.gate.FD(), "epoll"); err != nil {
		return syscallError("dup", err)
	}
	return nil
}

// close stops the driver and frees everything. No socket may be left.
func (l *loop) close() error {
	l.stopping.Store(true)
	err := l.gatePoller.SetDeadline(time.Unix(1, 0)) // wakes the driver
	l.done.Wait()
	return errors.Join(err, l.free())
}

func (l *loop) free() error {
	var errs []error
	if l.ring != nil {
		errs = append(errs, l.ring.Close())
	}
	if l.gatePoller != nil {
		errs = append(errs, l.gatePoller.Close())
	}
	for _, p := range []*epoll.Instance{l.gate, l.poll} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	return errors.Join(errs...)
}

// drive is the driver's goroutine.
func (l *loop) drive() {
	for !l.stopping.Load() {
		if n := l.pass(); n > 0 {
			l.spin.found(n)
			l.settle()
			continue
		}
		if l.starved.Load() {
			l.standBack()
		} else if !l.search() {
			l.sleep()
		}
	}
}

// settle lets those run that were woken. When many of them have not begun by the
// time the driver runs again, they are stuck behind something that computes, or
// whose processor was taken away. As long as the driver is ready no other P
// takes over their queue, so it waits until all have begun.
func (l *loop) settle() {
	begin := time.Now()
	runtime.Gosched()
	if l.woken.Load() > fewEvents+1 && !l.starved.Load() {
		if l.woken.Add(-1) > 0 {
			<-l.settled
		}
		l.woken.Store(1)
	}
	l.stoodBack(time.Since(begin))
}

// standBack lets other goroutines run.
func (l *loop) standBack() {
	begin := time.Now()
	runtime.Gosched()
	l.stoodBack(time.Since(begin))
}

// stoodBack notes how long the driver let others run. When that is longer than
// the goroutines explain that the driver has woken, every P computes: the
// scheduler gives each goroutine a P for 10 ms, and the driver, which is one of
// many, comes last. The loop is starved when that happens a few times in a row
// (once is no more than another process that had the processor), until the driver
// was back soon several times in a row. A starved driver does not sleep, because
// the netpoller, which would wake it, is asked every 10 ms only and puts it last
// again.
func (l *loop) stoodBack(d time.Duration) {
	if long := d > longAway; long != l.wasLong {
		l.wasLong, l.inARow = long, 0
	}
	l.inARow++
	switch {
	case l.wasLong && l.inARow >= longInARow:
		l.starved.Store(true)
	case !l.wasLong && l.inARow >= soonInARow && l.starved.Load():
		l.starved.Store(false)
	}
}

const (
	longAway   = 4 * time.Millisecond
	longInARow = 3
	soonInARow = 8
)

// help does the work of a driver that is starved. A call that is about to wait
// does it, whose P would be given to a goroutine that computes next.
// When a pass is under way, which may have looked too early, its goroutine makes
// another one.
func (l *loop) help() {
	l.wanted.Store(true)
	for l.wanted.Load() && l.passing.TryLock() {
		l.wanted.Store(false)
		l.driving = false
		l.passLocked()
		l.passing.Unlock()
	}
}

// begun is told by a reader that was given its data that it runs.
func (l *loop) begun() {
	if l.woken.Add(-1) == 0 {
		l.settled <- struct{}{}
	}
}

// pass serves what is ready now and returns how many events there were.
func (l *loop) pass() int {
	l.passing.Lock()
	l.driving = true
	n := l.passLocked()
	l.passing.Unlock()
	if l.wanted.Load() {
		l.help()
	}
	return n
}

func (l *loop) passLocked() int {
	n, errno := l.poll.PollSockets(l.events)
	if errno != 0 && errno != syscall.EINTR {
		panic("unet: epoll_pwait: " + errno.Error()) // our own descriptor and memory
	}
	if n == 0 {
		return 0
	}
	l.collect(l.events[:n])
	l.receive()
	return n
}

// collect tells the sockets what happened to them and gathers the receives of
// those who wait.
func (l *loop) collect(events []epoll.Event) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	for i := range events {
		if s := l.table.find(epoll.Data(&events[i])); s != nil {
			l.notice(s, events[i].Events)
		}
	}
}

func (l *loop) notice(s *sock, events uint32) {
	const failed = syscall.EPOLLERR | syscall.EPOLLHUP
	if events&(failed|syscall.EPOLLRDHUP|syscall.EPOLLPRI) != 0 {
		s.wary.Store(true)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if events&(syscall.EPOLLIN|syscall.EPOLLRDHUP|failed) != 0 {
		if h := &s.rd; h.state == parked && s.in.buf != nil {
			h.state = taken
			l.batch = append(l.batch, receive{s, s.in.buf})
		} else {
			if s.datagram && !s.muted && h.state == idle && h.ready.Load() {
				s.mute() // the reader knows already
			}
			h.becomeReady()
		}
	}
	if events&(syscall.EPOLLOUT|failed) != 0 {
		s.wr.becomeReady()
	}
}

// becomeReady notes readiness and wakes who waits for it. The caller holds the
// socket's mu.
func (h *half) becomeReady() {
	h.ready.Store(true)
	h.interrupt()
}

// sleep waits in the netpoller until something happens.
func (l *loop) sleep() {
	if errno := l.gate.Modify(l.poll.FD(), syscall.EPOLLIN|epoll.OneShot, 0); errno != 0 {
		panic("unet: epoll_ctl: " + errno.Error()) // our own descriptors
	}
	_ = l.gatePoller.Wait(l.gateTry) // fails when the loop is stopped
}

// search looks for work for a little while and says whether it found some,
// which it has served.
func (l *loop) search() bool {
	if !l.spin.worthwhile() {
		return false
	}
	for start := time.Now(); ; {
		l.standBack()
		if n := l.pass(); n > 0 {
			l.spin.hit(n)
			return true
		}
		if time.Since(start) > l.spin.limit {
			l.spin.missed()
			return false
		}
	}
}

// spinner decides whether to look for more work before sleeping. It pays when
// there is little to do and the answer of a peer is near.
type spinner struct {
	limit time.Duration
	small bool // the last pass had few events
	skip  int  // how many times not to spin
	pause int  // how many times not to spin after the next miss
}

// fewEvents is the largest pass after which spinning is tried: after a larger
// one there are goroutines to run. As many readers may be slow to run before the
// driver waits for them.
const fewEvents = 4

const longestPause = 64

func (s *spinner) worthwhile() bool {
	if s.limit <= 0 || !s.small {
		return false
	}
	if s.skip > 0 {
		s.skip--
		return false
	}
	return true
}

// found notes the size of a pass. It does not forgive misses: the events of a
// slow trickle come too late for any spinning.
func (s *spinner) found(n int) { s.small = n <= fewEvents }

// hit is found during a spin.
func (s *spinner) hit(n int) {
	s.found(n)
	s.pause = 0
}

func (s *spinner) missed() {
	s.pause = min(2*s.pause+1, longestPause)
	s.skip = s.pause
}

// receive is one that the loop makes for a reader that waits. The reader leaves
// when it is told that the receive is over, so the socket stays open and the
// buffer in place.
type receive struct {
	sock *sock
	buf  []byte
}

// lengthy is how many bytes a batch may receive without telling the scheduler.
const lengthy = 256 << 10

// receive makes the receives that were gathered.
func (l *loop) receive() {
	switch {
	case len(l.batch) == 0:
		return
	case len(l.batch) > 1 && l.useRing && l.openRing():
		l.receiveRing()
	default:
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

// openRing opens the ring when it is first needed. Without one, which is for
// want of memory or descriptors, plain calls do the same.
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
		return false
	}
	l.ring, l.cqes = r, make([]uring.CQE, maxBatch)
	return true
}

// receiveRing makes all receives in one call. None waits, so all of them are
// complete when it returns.
func (l *loop) receiveRing() {
	bytes := 0
	for i, r := range l.batch {
		l.ring.SQE().Recv(uring.Fd(r.sock.fd.Int()), r.buf, sys.MsgDontWait).Raw().UserData = uint64(i)
		bytes += len(r.buf)
	}
	for left := len(l.batch); left > 0; {
		_, err := l.ring.Wait(uring.WaitOptions{Count: left, Brief: bytes <= lengthy})
		n := l.ring.Reap(l.cqes)
		for _, c := range l.cqes[:n] {
			l.finishReceive(c)
		}
		left -= n
		if err != nil && left > 0 && !l.ringGoesOn(&left) {
			return
		}
	}
}

// finishReceive hands a result to its reader.
func (l *loop) finishReceive(c uring.CQE) {
	r := &l.batch[c.UserData]
	r.sock.received(l, int(max(c.Res, 0)), c.Errno())
	*r = receive{}
}

// ringGoesOn decides after a failed call. What the kernel took completes; what
// it did not take is received with plain calls, and the ring is given up.
func (l *loop) ringGoesOn(left *int) bool {
	if *left > l.ring.Pending() {
		return true // the kernel has some of them: go on waiting
	}
	_ = l.ring.Close() // nothing is in flight
	l.ring, l.useRing = nil, false
	l.receivePlain()
	return false
}

// received is told the result of a receive that loop l made for the reader.
func (s *sock) received(l *loop, n int, errno syscall.Errno) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := &s.rd
	switch {
	case errno == syscall.EAGAIN && !s.closing && !h.expired.Load():
		h.state = parked // it was a false alarm
		return
	case errno == syscall.EAGAIN:
	case errno == syscall.EINTR, errno == syscall.ECANCELED: // nobody here cancels
		h.ready.Store(true)
	default:
		sys.RaceWrite(s.in.buf[:n])
		s.mayHoldMore(n, len(s.in.buf), errno)
		s.in.n, s.in.errno, s.in.done = n, uint32(errno), true
		if l.driving {
			s.in.counted = true
			l.woken.Add(1)
		}
	}
	h.finish()
}

// mayHoldMore notes after a receive of n bytes into room whether another would
// bring something at once. After a short one a stream is empty, and the loop
// will tell when that changes.
func (s *sock) mayHoldMore(n, room int, errno syscall.Errno) {
	if errno != 0 || n == room || n == 0 || s.wary.Load() {
		s.rd.ready.Store(true)
	}
}
