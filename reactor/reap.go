// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// reapBatch is how many completions are taken at a time.
const reapBatch = 64

// User data of entries that belong to no operation. No ID of an operation has
// generation 0, or one of the two highest bits set.
const (
	tagWake    inflight.ID = 1
	tagTimeout inflight.ID = 1 << 63 // with the operation's ID
	tagCancel  inflight.ID = 1 << 62 // with the operation's ID
)

// reap takes the completions that are there and wakes who waits for them. When
// somebody else is at it, it returns at once.
func (l *loop) reap() {
	for l.reaping.TryLock() {
		n := l.reapBatch()
		l.reaping.Unlock()
		l.calls.kick()
		if n > 0 && l.refused.Load() {
			l.resumeNow()
		}
		if n < reapBatch {
			break
		}
	}
	l.runBacklog()
}

// reapBatch takes one batch. The caller holds reaping.
func (l *loop) reapBatch() int {
	if l.gone {
		return 0
	}
	n := l.ring.Reap(l.batch[:])
	if n > 0 {
		l.stats.completed.Add(uint64(n))
		l.stats.overflows.Store(l.ring.CQOverflow())
	}
	for _, c := range l.batch[:n] {
		l.deliver(c)
	}
	return n
}

// deliver takes one completion to its operation. One that finds no slot
// belongs to an operation that is over.
func (l *loop) deliver(c uring.CQE) {
	id := inflight.ID(c.UserData)
	switch {
	case id == tagWake:
		l.rearmWake()
		return
	case id&tagTimeout != 0:
		l.timeoutDone(id&^tagTimeout, c)
		return
	case id&tagCancel != 0:
		l.cancelDone(id&^tagCancel, c)
		return
	}
	s := l.table.Lookup(id)
	if s == nil {
		return
	}
	v := &s.Value
	more := c.Has(uring.CQEMore)
	switch {
	case v.stream && more:
		l.stats.events.Add(1)
		l.calls.add(v.fn, Result{Res: c.Res, Flags: uring.CQEFlags(c.Flags)})
		return
	case !v.answered: // a notification does not replace the answer
		v.res = Result{Res: c.Res, Flags: uring.CQEFlags(c.Flags)}
		v.answered = true
	}
	if more {
		return
	}
	if interrupted(v.res.Res) && l.unasked(s) {
		return
	}
	l.end(s, v.res)
}

// interrupted says whether an operation was ended before its time. Worker
// threads that are interrupted answer as a system call would, on 6.1 also with
// what the kernel never shows otherwise.
func interrupted(res int32) bool {
	const restart = 512 // ERESTARTSYS
	switch res {
	case -int32(syscall.ECANCELED), -int32(syscall.EINTR), -restart:
		return true
	}
	return false
}

// unasked decides what a cancellation means. It says true when the operation
// goes on: nobody asked, so the thread that submitted it has exited, or a
// signal has hit a worker thread.
func (l *loop) unasked(s *slot) bool {
	v := &s.Value
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case v.timeout.armed() && !time.Now().Before(v.timeout.at):
		v.res.Err = os.ErrDeadlineExceeded
	case v.cancelled:
		v.res.Res = -int32(syscall.ECANCELED)
		if l.shut {
			v.res.Err = ErrClosed
		}
	case v.op.SQE.Flags&linkFlags != 0 || v.group != nil && v.group.chain:
		// A predecessor in the chain failed: that is the answer.
	case v.stream:
		// The consumer may have to set up its state again: let it decide.
	default:
		v.answered = false
		l.backlog = append(l.backlog, chore{id: s.ID()})
		l.stats.retried.Add(1)
		return true
	}
	return false
}

const linkFlags = uint8(uring.SQELink | uring.SQEHardLink)

// end gives the result of an operation to whoever waits for it.
func (l *loop) end(s *slot, res Result) {
	v := &s.Value
	v.res = res
	if !s.Complete() {
		l.release(s)
		return
	}
	if !v.detached {
		v.done <- struct{}{} // the waiter releases
		return
	}
	fn, g, i := v.fn, v.group, v.index
	l.release(s)
	if g != nil {
		g.add(i, res)
	}
	l.calls.add(fn, res)
}

// reapParked is what a shared loop's goroutine does when the ring is readable.
func (l *loop) reapParked() {
	l.reaping.Lock() // wait for an inline reaper: it may have looked too early
	l.reaping.Unlock()
	l.reap()
	l.mu.Lock()
	if len(l.pending) > 0 && (!l.leading || l.delays.starving()) {
		l.flush() // entries that the kernel refused, or whose leader sleeps
	}
	l.mu.Unlock()
}

// failParked is told that the netpoller gave up.
func (l *loop) failParked(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail(err)
}
