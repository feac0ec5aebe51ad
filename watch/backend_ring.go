// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// ringBackend arms polls on a ring whose completions are processed by the
// thread that waits: a multishot poll for Edge, otherwise one-shot polls, armed
// again after each report. Changes are SQEs of the next enter.
type ringBackend struct {
	w      *Watcher
	t      *table
	ring   *uring.Ring
	wakeup *sys.FD         // an eventfd, never read: each signal is an edge
	ask    *epoll.Instance // finds out which files can be polled

	enabled     bool     // a thread owns the ring
	unusable    bool     // the caller is on another thread, or completions were lost: open a new ring
	moves       int      // rings opened since the first
	wakeupArmed bool     // a poll of wakeup is with the kernel
	cancels     []uint64 // user data of polls to cancel
	shown       int      // entries that the next wait submits
	behind      bool     // changes had no room in the queue
	busy        bool     // the last turn had several completions: check before sleeping
	lookFound   bool     // the last check before sleeping found completions
	roundUp     int      // 1 in every second turn, for a Batch that is odd
	cqes        [128]uring.CQE
	recheck     recheckList
	reorder     *reorderer // where the kernel needs it
}

// maxMoves is how often a watcher that chose io_uring itself follows its caller
// to another thread.
const maxMoves = 8

// Sizes of a ring: changes per enter, and completions between two turns before
// the kernel has to keep them elsewhere.
const (
	ringEntries     = 256
	ringCompletions = 4096
	// ringHold is how much task work one enter does.
	ringHold = 1024
)

// haveRing returns an error if the kernel lacks something that the backend needs.
func haveRing() error {
	if err := features.HaveIOURing(); err != nil {
		return err
	}
	if err := features.HaveDeferTaskrun(); err != nil {
		return err
	}
	if err := features.HaveMultishotPoll(); err != nil {
		return err
	}
	return features.HaveFeature(uring.FeatExtArg | uring.FeatCQESkip)
}

func newRing(w *Watcher) (*ringBackend, error) {
	b := &ringBackend{w: w, t: &w.table, lookFound: true}
	if newestFirst() {
		b.reorder = new(reorderer)
	}
	var err error
	if b.ring, err = openRing(true, w.opts.Restrict); err != nil {
		return nil, err
	}
	if b.wakeup, err = sys.EventFD(); err == nil {
		b.ask, err = epoll.Open()
	}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

// openRing opens a ring. A disabled one belongs to the thread that enables it,
// another to the caller's.
func openRing(disabled, restrict bool) (*uring.Ring, error) {
	o := uring.Options{
		Entries:      ringEntries,
		CQEntries:    ringCompletions,
		DeferTaskrun: true,
		SubmitAll:    true,
		Disabled:     disabled,
		NoSQArray:    features.HaveSetup(uring.SetupNoSQArray) == nil,
		NoIOWait:     true,
	}
	if restrict {
		o.Restrict = &uring.Restrictions{
			Ops:          []uring.Op{uring.OpPollAdd, uring.OpPollRemove, uring.OpAsyncCancel},
			FlagsAllowed: uring.SQESkipSuccess,
		}
	}
	r, err := uring.Open(o)
	if err == nil {
		r.DeferCQHead(ringHold)
	}
	return r, err
}

func (b *ringBackend) wake() { sys.Signal(b.wakeup) }

// release ends all polls, because the kernel holds the polled files. On another thread than the
// ring's it has no effect: there the kernel ends the polls shortly after close.
func (b *ringBackend) release() {
	if !b.enabled || b.unusable {
		return
	}
	for fd := range b.t.entries {
		b.disarm(int32(fd), &b.t.entries[fd])
	}
	for _, ud := range b.cancels {
		if !b.cancel(ud) {
			return
		}
	}
	b.cancels = nil
	if _, err := b.ring.SubmitNoWait(); err != nil {
		return
	}
	for b.ring.Reap(b.cqes[:]) > 0 {
	}
}

func (b *ringBackend) close() error {
	b.release()
	errs := []error{b.ring.CloseNow()} // polls hold no memory of ours
	if b.wakeup != nil {
		errs = append(errs, b.wakeup.Close())
	}
	if b.ask != nil {
		errs = append(errs, b.ask.Close())
	}
	return errors.Join(errs...)
}

// follow opens a ring on the caller's thread and arms everything there. A
// watcher that has followed too often goes over to epoll if it may.
func (b *ringBackend) follow() error {
	b.moves++
	b.w.count.moves.Add(1)
	if b.w.chosen && b.moves > maxMoves {
		return b.giveUp(fmt.Errorf("the goroutine that calls Wait changes threads: call runtime.LockOSThread in it"))
	}
	ring, err := openRing(false, b.w.opts.Restrict)
	if err != nil {
		if b.w.chosen {
			return b.giveUp(err)
		}
		return fmt.Errorf("watch: io_uring: %w", err)
	}
	err = b.ring.CloseNow()
	b.ring, b.enabled, b.unusable = ring, true, false
	b.wakeupArmed, b.shown, b.cancels = false, 0, b.cancels[:0]
	b.recheck.clear()
	if b.reorder != nil {
		*b.reorder = reorderer{}
	}
	for fd := range b.t.entries {
		if e := &b.t.entries[fd]; e.on && !e.gone {
			e.turn() // the new ring reports the events of the old one again
			e.armed = false
			b.t.change(int32(fd), e)
		}
	}
	return err
}

// add lists the descriptor to be armed. It first asks epoll whether the file can be
// polled, because a ring reports a file that cannot be polled as ready.
func (b *ringBackend) add(fd int, e *entry) syscall.Errno {
	mode, id, errno := sys.FileMode(fd)
	if errno == 0 && !alwaysPollable(mode) {
		if errno = b.ask.Add(fd, 0, 0); errno == 0 {
			b.ask.Remove(fd)
		}
	}
	if errno == 0 {
		e.file = id
		b.t.change(int32(fd), e)
	}
	return errno
}

// alwaysPollable reports whether every file of that type can be polled: sockets
// and pipes. It saves a system call for the most common descriptors.
func alwaysPollable(mode uint32) bool {
	const typeMask, socket, fifo = 0xf000, 0xc000, 0x1000
	return mode&typeMask == socket || mode&typeMask == fifo
}

func (b *ringBackend) modify(fd int, e *entry, _ Trigger) syscall.Errno {
	if e.gone {
		return syscall.ENOENT // as with epoll
	}
	e.dirty, e.onceByMulti, e.rechecked = true, false, false
	b.t.change(int32(fd), e)
	return 0
}

func (b *ringBackend) remove(fd int, e *entry) {
	if e.armed {
		b.cancels = append(b.cancels, userData(int32(fd), e.gen))
	}
}

// prepare turns changes into entries, which the wait submits.
func (b *ringBackend) prepare() error {
	if b.unusable {
		if err := b.follow(); err != nil || b.w.backend != backend(b) {
			return err
		}
	}
	if !b.enabled {
		if err := b.ring.Enable(); err != nil {
			return err
		}
		b.enabled = true
	}
	b.behind = !b.fill()
	n, err := b.ring.Publish()
	b.shown = n
	return err
}

// fill fills entries and reports whether there was room for all.
func (b *ringBackend) fill() bool {
	if !b.wakeupArmed {
		e := b.sqe()
		if e == nil {
			return false
		}
		e.PollMultishot(uring.Fd(b.wakeup.Int()), uring.PollEvents(Read)).SetUserData(udWakeup)
		b.wakeupArmed = true
	}
	for i, ud := range b.cancels {
		if !b.cancel(ud) {
			b.cancels = append(b.cancels[:0], b.cancels[i:]...)
			return false
		}
	}
	b.cancels = b.cancels[:0]
	// Each poll may complete at once, and a full CQ ends multishot polls: leave
	// room.
	t, room := b.t, b.ring.CQEntries()/2-b.waiting()
	for i, fd := range t.changes {
		if i >= room || !b.arm(fd, &t.entries[fd]) {
			t.changes = append(t.changes[:0], t.changes[i:]...)
			return false
		}
	}
	t.changes = t.changes[:0]
	b.recheck.take(t)
	return true
}

// arm makes the polls in the kernel match the registration, and reports whether the SQ had
// room.
func (b *ringBackend) arm(fd int32, e *entry) bool {
	want := e.on && !e.spent && !e.gone
	multi := e.mode != OneShot || e.onceByMulti
	if e.armed {
		if want && e.multi == multi {
			if e.dirty && !b.update(fd, e) {
				return false
			}
			e.dirty, e.queued = false, false
			return true
		}
		if !b.cancel(userData(fd, e.gen)) {
			return false
		}
		e.armed = false
		e.turn() // its later reports are stale
	}
	if want {
		s := b.sqe()
		if s == nil {
			return false
		}
		if multi {
			s.PollMultishot(uring.Fd(int(fd)), pollMask(e))
		} else {
			s.PollAdd(uring.Fd(int(fd)), pollMask(e))
		}
		s.SetUserData(userData(fd, e.gen))
		e.armed, e.multi = true, multi
	}
	e.dirty, e.queued = false, false
	return true
}

// pollMask returns the events to poll for. A poll for POLLPRI alone does not see the arrival of
// urgent data, because the kernel leaves that bit out when it compares the events of a wakeup
// (seen on 6.18; the suite's Events/Priority fails without this). Such a wakeup has POLLIN, too.
func pollMask(e *entry) uring.PollEvents {
	mask := e.interest
	if mask&Priority != 0 {
		mask |= Read
	}
	return uring.PollEvents(mask)
}

// update changes a poll in place. Only its failure completes.
func (b *ringBackend) update(fd int32, e *entry) bool {
	s := b.sqe()
	if s == nil {
		return false
	}
	ud := userData(fd, e.gen)
	s.PollUpdate(ud, pollMask(e), ud)
	s.SetFlags(uring.SQESkipSuccess).SetUserData(ud | udControl)
	return true
}

// cancel ends a poll. The poll may have ended already, so failures are ignored.
func (b *ringBackend) cancel(ud uint64) bool {
	s := b.sqe()
	if s == nil {
		return false
	}
	s.Cancel(ud).SetFlags(uring.SQESkipSuccess).SetUserData(udIgnored)
	return true
}

// sqe returns a free SQE. It submits when the queue is full, and returns nil when the
// kernel does not take SQEs for now.
func (b *ringBackend) sqe() *uring.SQE {
	if s := b.ring.SQE(); s != nil {
		return s
	}
	if _, err := b.ring.SubmitNoWait(); err != nil {
		b.unusable = b.unusable || ringUnusable(err)
		return nil
	}
	return b.ring.SQE()
}
