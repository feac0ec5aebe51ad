// SPDX-License-Identifier: MIT

package reactor

import (
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// chore is something to enter later: an operation that came back cancelled
// though nobody asked, what did not fit into the queue of a pinned loop, or a
// cancellation.
type chore struct {
	id     inflight.ID
	cancel bool   // cancel the operation instead of starting it
	chain  *group // start all of these as one chain; id is that of the first
}

// leaveChore puts something into the backlog. Whoever is not about to run the
// backlog must see to it that somebody does. The caller holds mu.
func (l *loop) leaveChore(c chore) {
	l.backlog = append(l.backlog, c)
	l.chores.Store(true)
	if l.opts.Pinned {
		l.wakeLocked()
	}
}

// runBacklog enters and submits what waits in the backlog, in the order in which it
// came, and reports whether there was anything: on a shared loop the caller has to reap
// then. On a pinned loop only the thread calls it. Nobody who holds reaping may.
func (l *loop) runBacklog() bool {
	if !l.chores.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.backlog) == 0 || l.choring {
		return false
	}
	l.choring = true // so that others queue up behind it
	for i := 0; i < len(l.backlog); i++ {
		c := l.backlog[i]
		l.backlog[i] = chore{} // fail looks at what is left
		l.runChore(c)
	}
	l.choring = false
	clear(l.backlog)
	l.backlog = l.backlog[:0]
	l.chores.Store(false)
	if l.opts.Pinned {
		l.wakeLocked()
	} else {
		l.flush()
	}
	return true
}

// runChore enters one thing. The caller holds mu, which may be let go meanwhile.
func (l *loop) runChore(c chore) {
	switch {
	case l.table.Lookup(c.id) == nil: // it is over
	case c.cancel:
		l.sendCancel(c.id)
	case c.chain != nil:
		l.startChain(c)
	default:
		l.restart(c)
	}
}

// restart starts an operation that is known to the table. The caller holds mu.
func (l *loop) restart(c chore) {
	s := l.table.Lookup(c.id)
	s.Value.timeout.renew(time.Now())
	err := l.makeRoomAgain(s.Value.entries())
	switch {
	case l.table.Lookup(c.id) != s: // it has ended while there was no room
	case err != nil:
		l.end(s, Result{Cause: err})
	default:
		l.fill(s, false)
	}
}

// startChain starts a chain that is known to the table. The caller holds mu.
func (l *loop) startChain(c chore) {
	slots := c.chain.slots
	first := slots[0]
	err := l.makeRoomAgain(len(slots))
	switch {
	case l.table.Lookup(c.id) != first: // as above, and the slots are others'
	case err != nil:
		l.endAll(slots, err)
	default:
		for i, s := range slots {
			l.fill(s, i < len(slots)-1)
		}
	}
}

// endAll ends operations that the kernel has not seen. The caller holds mu.
func (l *loop) endAll(slots []*slot, err error) {
	for _, s := range slots {
		l.end(s, Result{Cause: err})
	}
}

// sendCancel enters a cancellation. The user data names this use of the slot
// only, so nobody else's operation can be hit. The caller holds mu and, on a
// pinned loop, is the thread.
func (l *loop) sendCancel(id inflight.ID) {
	var e uring.SQE
	l.control(e.Cancel(uint64(id), 0), id|tagCancel)
}
