// SPDX-License-Identifier: MIT

package reactor

import (
	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// reapBatch is how many completions are taken under the lock at a time.
const reapBatch = 64

// reap takes the completions that are there and wakes who waits for them. When
// somebody else is at it, it returns at once.
func (l *loop) reap() {
	var batch [reapBatch]uring.CQE
	for {
		if !l.reaping.TryLock() {
			return
		}
		n := l.ring.Reap(batch[:])
		l.stats.overflows.Store(l.ring.CQOverflow())
		l.reaping.Unlock()
		for _, c := range batch[:n] {
			l.deliver(c)
		}
		if n < len(batch) {
			return
		}
	}
}

// deliver ends the operation of a completion. One that finds no slot belongs
// to an operation that is over, which a single-shot operation never causes.
func (l *loop) deliver(c uring.CQE) {
	l.stats.completed.Add(1)
	s := l.table.Lookup(inflight.ID(c.UserData))
	if s == nil {
		return
	}
	s.Value.res = Result{Res: c.Res, Flags: uring.CQEFlags(c.Flags)}
	l.finish(s)
}

// finish hands a slot to its waiter, or releases it when nobody waits.
func (l *loop) finish(s *slot) {
	if s.Complete() {
		s.Value.done <- struct{}{}
		return
	}
	l.release(s)
}

// reapParked is what the parked goroutine does when the ring is readable.
func (l *loop) reapParked() {
	l.reaping.Lock() // wait for an inline reaper: it may have looked too early
	l.reaping.Unlock()
	l.reap()
	l.mu.Lock()
	if len(l.pending) > 0 && !l.leading {
		l.flush() // entries that the kernel refused before
	}
	l.mu.Unlock()
}
