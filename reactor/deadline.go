// SPDX-License-Identifier: MIT

package reactor

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// linkedTimeout is the second entry of an operation with a deadline. It lives
// in the slot, because the kernel reads the time when it takes the entry.
type linkedTimeout struct {
	on bool
	at time.Time
	ts uring.Timespec
}

func (t *linkedTimeout) arm(at time.Time) {
	t.on, t.at = true, at
	t.renew(time.Now())
}

func (t *linkedTimeout) disarm() {
	if t != nil {
		t.on = false
	}
}

func (t *linkedTimeout) armed() bool { return t != nil && t.on }

// passed reports whether there is a deadline and it is over.
func (t *linkedTimeout) passed(now time.Time) bool { return t.armed() && !now.Before(t.at) }

// renew computes what is left. A deadline that has passed still needs a
// positive time.
func (t *linkedTimeout) renew(now time.Time) {
	if t.armed() {
		t.ts = uring.NewTimespec(max(t.at.Sub(now), 1))
	}
}

// enter fills the entry that follows the operation's.
func (t *linkedTimeout) enter(e *uring.SQE, id inflight.ID) {
	e.LinkTimeout(&t.ts, 0).SetUserData(uint64(id | tagTimeout))
}

// timeoutDone takes the completion of a linked timeout. It has fired and
// cancelled the operation (ETIME), or so it says (see promised), or the
// operation ended first (ECANCELED). Otherwise it fired and missed, or was never
// armed because the kernel ran out of memory between the two entries: then the
// operation is cancelled by hand. If that is before the deadline, the operation starts
// again, as far as its retryRule allows.
func (l *loop) timeoutDone(id inflight.ID, c uring.CQE) {
	switch c.Errno() {
	case 0, syscall.ECANCELED:
		return
	case syscall.ETIME:
		if s := l.table.Lookup(id); s != nil {
			s.Value.fired.Store(uint64(id))
		}
		l.cancelAgain(id, true)
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.table.Lookup(id); s != nil {
		s.Value.restart.Store(uint64(id))
		l.cancelByHand(id)
	}
}
