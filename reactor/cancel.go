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
	s.Value.requestCancel(id)
	l.addWork(work{id: id, cancel: true})
	l.mu.Unlock()
	l.advance()
	return nil
}

// advance submits the work, if there is any, and reaps.
func (l *loop) advance() {
	if l.runWork() {
		l.reap()
	}
}

// cancelAll asks the kernel to end every operation. No operation can start after that.
func (l *loop) cancelAll() {
	l.mu.Lock()
	l.table.Each(func(s *slot) {
		id := s.ID()
		if l.failed == nil && l.table.Lookup(id) == s && !s.Value.cancelRequested(id) {
			s.Value.requestCancel(id)
			l.addWork(work{id: id, cancel: true})
		}
	})
	l.mu.Unlock()
	l.advance()
}

// cancelledLimit is how long an operation may take to end after the kernel has reported
// it as cancelled. Some operations do not end: a read of a pipe whose poll fired at the
// same time tries again, finds no data, and waits for more. Seen on Linux 6.1; TestSoak
// hangs there without the repetition.
const cancelledLimit = 16 * time.Millisecond

// cancelDone takes the completion of a cancellation. If the operation does not end soon,
// it is cancelled again: a cancellation that finds the operation between two states
// (EALREADY, ENOENT) has no effect. Seen on Linux 6.18 with reads of a pipe;
// TestEachOperationEndsOnce hangs without the repetition. The caller holds reaping.
func (l *loop) cancelDone(id inflight.ID, c uring.CQE) {
	s := l.table.Lookup(id)
	if s == nil {
		return // its completion came first
	}
	// The pause grows, for operations that cannot be cancelled, such as reads from a
	// disk.
	pause := time.Millisecond << min(s.Value.countMissed(id), 7)
	if c.Res >= 0 {
		pause = max(pause, cancelledLimit)
	}
	time.AfterFunc(pause, func() { l.cancelAgain(id) })
}

// cancelAgain is the timer's function.
func (l *loop) cancelAgain(id inflight.ID) {
	l.mu.Lock()
	s := l.table.Lookup(id)
	// An operation that is rechecked is not in the kernel.
	if s != nil && l.failed == nil && s.Value.cancelRequested(id) && s.Value.rechecking.Load() != uint64(id) {
		l.addWork(work{id: id, cancel: true})
	}
	l.mu.Unlock()
	l.advance()
}
