// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// prepare turns changes into entries, which the wait submits.
func (b *ringBackend) prepare() error {
	if b.stray {
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

// fill fills entries and says whether there was room for all.
func (b *ringBackend) fill() bool {
	if !b.bellArmed {
		e := b.sqe()
		if e == nil {
			return false
		}
		e.PollMultishot(uring.Fd(b.bell.Int()), uring.PollEvents(Read)).SetUserData(udBell)
		b.bellArmed = true
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
	b.hot.take(t)
	return true
}

// arm makes what the kernel has fit what is asked for, and says whether there
// was room for the entries.
func (b *ringBackend) arm(fd int32, e *entry) bool {
	want := e.on && !e.spent && !e.gone
	multi := e.mode != OneShot || e.muted
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
		e.turn() // what it reports from here on is stale
	}
	if want {
		s := b.sqe()
		if s == nil {
			return false
		}
		if multi {
			s.PollMultishot(uring.Fd(int(fd)), uring.PollEvents(e.interest))
		} else {
			s.PollAdd(uring.Fd(int(fd)), uring.PollEvents(e.interest))
		}
		s.SetUserData(userData(fd, e.gen))
		e.armed, e.multi = true, multi
	}
	e.dirty, e.queued = false, false
	return true
}

// update changes a poll in place. Only its failure completes.
func (b *ringBackend) update(fd int32, e *entry) bool {
	s := b.sqe()
	if s == nil {
		return false
	}
	ud := userData(fd, e.gen)
	s.PollUpdateEvents(ud, uring.PollEvents(e.interest))
	s.SetFlags(uring.SQESkipSuccess).SetUserData(ud | udControl)
	return true
}

// cancel ends a poll. It may be gone already, so that failure means nothing.
func (b *ringBackend) cancel(ud uint64) bool {
	s := b.sqe()
	if s == nil {
		return false
	}
	s.Cancel(ud, 0).SetFlags(uring.SQESkipSuccess).SetUserData(udNobody)
	return true
}

// sqe returns a free entry, submitting when the queue is full; nil when the
// kernel refuses for now.
func (b *ringBackend) sqe() *uring.SQE {
	if s := b.ring.SQE(); s != nil {
		return s
	}
	if _, err := b.ring.SubmitNoWait(); err != nil {
		b.stray = b.stray || strays(err)
		return nil
	}
	return b.ring.SQE()
}

// strays says whether an error means that the ring is of no use to the caller's
// thread: it belongs to another one, or completions were lost.
func strays(err error) bool {
	return errors.Is(err, syscall.EEXIST) || errors.Is(err, errLost)
}
