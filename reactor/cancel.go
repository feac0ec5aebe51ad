// SPDX-License-Identifier: MIT

package reactor

import (
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// cancel asks the kernel to end one operation.
func (l *loop) cancel(id inflight.ID) error {
	l.mu.Lock()
	s := l.table.Lookup(id)
	if s == nil {
		l.mu.Unlock()
		return ErrNotFound
	}
	if l.failed != nil {
		defer l.mu.Unlock()
		return l.failed
	}
	s.Value.cancelled = true
	l.enterCancel(id)
	l.mu.Unlock()
	if !l.opts.Pinned {
		l.reap()
	}
	return nil
}

// enterCancel gets a cancellation to the kernel without waiting for others.
// The caller holds mu.
func (l *loop) enterCancel(id inflight.ID) {
	if l.opts.Pinned {
		l.backlog = append(l.backlog, chore{id: id, cancel: true})
		l.wakeLocked()
		return
	}
	l.sendCancel(id)
	l.flush()
}

// cancelAll asks the kernel to end every operation. The caller holds mu, which
// may be let go meanwhile.
func (l *loop) cancelAll() {
	l.table.Each(func(s *slot) {
		if l.failed == nil && !s.Value.cancelled {
			s.Value.cancelled = true
			l.enterCancel(s.ID())
		}
	})
}

// cancelDone takes the completion of a cancellation. One that found the
// operation between two states (EALREADY, ENOENT) can be lost: the operation
// goes on to wait for what may never come. Seen on Linux 6.18 with reads of a
// pipe; TestEachOperationEndsOnce hangs without the repetition.
func (l *loop) cancelDone(id inflight.ID, c uring.CQE) {
	if c.Res >= 0 {
		return
	}
	s := l.table.Lookup(id)
	if s == nil {
		return // its completion came first
	}
	tries := min(s.Value.cancels, 7)
	s.Value.cancels++
	// The pause is for operations that truly cannot be stopped, such as a
	// disk's.
	time.AfterFunc(time.Millisecond<<tries, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.table.Lookup(id) != nil && l.failed == nil {
			l.enterCancel(id)
		}
	})
}
