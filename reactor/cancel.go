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
	if !l.opts.Pinned {
		l.runBacklog()
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
	if c.Res >= 0 {
		return
	}
	s := l.table.Lookup(id)
	if s == nil {
		return // its completion came first
	}
	tries := min(s.Value.miss(id), 7)
	// The pause is for operations that truly cannot be stopped, such as a
	// disk's.
	time.AfterFunc(time.Millisecond<<tries, func() {
		l.cancelByHand(id)
		l.catchUp()
	})
}

// cancelByHand leaves a cancellation in the backlog, for which nobody has asked.
func (l *loop) cancelByHand(id inflight.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.table.Lookup(id) != nil && l.failed == nil {
		l.leaveChore(chore{id: id, cancel: true})
	}
}
