// SPDX-License-Identifier: MIT

package reactor

import (
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// chore is something to enter later: an operation that came back cancelled
// though nobody asked, or what did not fit into the queue of a pinned loop.
type chore struct {
	id     inflight.ID
	cancel bool // cancel the operation instead of starting it
}

// runBacklog enters what waits in the backlog. On a pinned loop the thread
// calls it.
func (l *loop) runBacklog() {
	l.mu.Lock()
	if len(l.backlog) == 0 {
		l.mu.Unlock()
		return
	}
	chores := l.backlog
	l.backlog = nil
	for _, c := range chores {
		l.runChore(c)
	}
	l.submit()
}

// runChore enters one thing. The caller holds mu.
func (l *loop) runChore(c chore) {
	s := l.table.Lookup(c.id)
	if s == nil {
		return // it is over
	}
	if c.cancel {
		l.sendCancel(c.id)
		return
	}
	v := &s.Value
	err := l.failed
	if l.shut {
		err = ErrClosed
	}
	if err == nil {
		v.timeout.renew(time.Now())
		err = l.makeRoom(v.entries())
	}
	if err != nil {
		l.end(s, Result{Err: err})
		return
	}
	l.fill(s, false)
}

// sendCancel enters a cancellation. The user data names this use of the slot
// only, so nobody else's operation can be hit. The caller holds mu and, on a
// pinned loop, is the thread.
func (l *loop) sendCancel(id inflight.ID) {
	var e uring.SQE
	l.control(e.Cancel(uint64(id), 0), id|tagCancel)
}
