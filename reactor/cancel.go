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
	s.Value.ask(id)
	if l.unpark(s, id) {
		l.endParked(s, nil)
	} else {
		l.leaveChore(chore{id: id, cancel: true})
	}
	l.mu.Unlock()
	l.catchUp()
	return nil
}

// catchUp enters the backlog, unless the thread of a pinned loop will do it.
func (l *loop) catchUp() {
	if !l.opts.Pinned && l.runBacklog() {
		l.reap()
	}
}

// cancelAll asks the kernel to end every operation of a loop that is shut.
func (l *loop) cancelAll() {
	l.mu.Lock()
	l.table.Each(func(s *slot) {
		id := s.ID()
		if l.failed == nil && l.table.Lookup(id) == s && !s.Value.asked(id) {
			s.Value.ask(id)
			if l.unpark(s, id) {
				l.endParked(s, ErrClosed)
			} else {
				l.leaveChore(chore{id: id, cancel: true})
			}
		}
	})
	l.mu.Unlock()
	l.catchUp()
}

// cancelDone takes the completion of a cancellation. One that found the
// operation between two states (EALREADY, ENOENT) can be lost: the operation
// goes on to wait for what may never come. Seen on Linux 6.18 with reads of a
// pipe; TestEachOperationEndsOnce hangs without the repetition.
func (l *loop) cancelDone(id inflight.ID, c uring.CQE) {
	l.cancelAgain(id, c.Res >= 0)
}

// promised is how long an operation may take to end after the kernel has said
// that it is cancelled. The word is not always kept: a read of a pipe for which
// the poll fired at the same moment looks again, finds the data gone, and waits
// for more. Seen on Linux 6.1; TestSoak hangs there without the repetition.
const promised = 16 * time.Millisecond

// cancelAgain cancels an operation that is still there after a while, unless it has
// been started again meanwhile. Only who reaps calls it.
func (l *loop) cancelAgain(id inflight.ID, said bool) {
	s := l.table.Lookup(id)
	if s == nil {
		return // its completion came first
	}
	// The pause grows for operations that truly cannot be stopped, such as a
	// disk's.
	pause := time.Millisecond << min(s.Value.miss(id), 7)
	if said {
		pause = max(pause, promised)
	}
	time.AfterFunc(pause, func() {
		l.mu.Lock()
		l.cancelByHand(id)
		l.mu.Unlock()
		l.catchUp()
	})
}

// cancelByHand leaves a cancellation in the backlog if there still is a reason for one:
// somebody has asked, the deadline is over, or could not be set. The caller holds mu.
func (l *loop) cancelByHand(id inflight.ID) {
	s := l.table.Lookup(id)
	if s == nil || l.failed != nil {
		return
	}
	v := &s.Value
	if v.judged.Load() == uint64(id) {
		return // the kernel does not have it
	}
	if v.asked(id) || v.restart.Load() == uint64(id) || v.fired.Load() == uint64(id) {
		l.leaveChore(chore{id: id, cancel: true})
	}
}
