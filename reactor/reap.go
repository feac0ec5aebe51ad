// SPDX-License-Identifier: MIT

package reactor

import (
	"syscall"

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

// reap takes the completions that are there, wakes who waits for them and
// enters what follows from them, until nothing does. The loop is a shared one.
func (l *loop) reap() {
	for {
		if l.reapAll() && l.refused.Load() {
			l.resume()
		}
		if !l.runBacklog() {
			return
		}
	}
}

// reapAll takes the completions that are there and reports whether there were any.
// When somebody else is at it, it returns at once.
func (l *loop) reapAll() bool {
	any := false
	for l.reaping.TryLock() {
		n := l.reapBatch()
		spilled := l.spilled
		l.reaping.Unlock()
		l.calls.kick()
		any = any || n > 0
		if n == 0 && spilled {
			l.strand()
		}
		if n < reapBatch && (n == 0 || !spilled) {
			break
		}
	}
	return any
}

// strand is for completions that had overflowed and did not come when the kernel
// was asked for them. A ring that has failed cannot ask again, and what completes
// from now on queues up behind them: nobody would ever be told.
func (l *loop) strand() {
	if !l.opts.Pinned && l.failure() != nil {
		l.giveUp()
		l.calls.kick()
	}
}

// reapBatch takes one batch. The caller holds reaping.
func (l *loop) reapBatch() int {
	l.spilled = false
	if l.gone {
		return 0
	}
	n := l.ring.Reap(l.batch[:])
	if n > 0 {
		l.stats.completed.Add(uint64(n))
	}
	if over := l.ring.CQOverflow(); over != l.stats.overflows.Load() {
		l.spilled = true
		l.stats.overflows.Store(over)
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
		l.wakeSpent = true
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
	if v.store != nil {
		l.deliverEvent(s, c)
		return
	}
	more := c.Has(uring.CQEMore)
	switch {
	case v.stream && more:
		l.stats.events.Add(1)
		l.calls.add(v.fn, Result{Res: c.Res, Flags: c.Flags})
		return
	case !v.answered: // a notification does not replace the answer
		v.res = Result{Res: plainErrno(c.Res), Flags: c.Flags}
		v.answered = true
	}
	switch {
	case more:
		return
	case v.orphan: // what it did as a no-op does not count
		v.res = Result{Res: -int32(syscall.ECANCELED), Cause: errSplit}
	case interrupted(v.res.Res) && l.stopped(s):
		return
	}
	l.end(s, v.res)
}

const linkFlags = uint8(uring.SQELink | uring.SQEHardLink)

// end gives the result of an operation to whoever waits for it. The caller holds
// reaping, or mu if the kernel does not have the operation: closeRing takes both
// to be sure that nobody is in here.
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
	fn, event, g, i := v.fn, v.event, v.group, v.index
	l.release(s)
	switch {
	case g != nil:
		g.add(i, res)
	case event != nil:
		l.calls.addEvent(event, res, Chunk{})
	default:
		l.calls.add(fn, res)
	}
}

// reapParked is what a shared loop's goroutine does when the ring is readable.
func (l *loop) reapParked() {
	l.reaping.Lock() // wait for an inline reaper: it may have looked too early
	any := l.reapBatch() > 0
	l.reaping.Unlock()
	l.calls.kick()
	if any && l.refused.Load() {
		l.resume()
	}
	l.reap()
	l.mu.Lock()
	if len(l.pending) > 0 && (!l.leading || l.delays.avoiding()) {
		l.flush() // entries that the kernel refused, or whose leader sleeps
	}
	l.mu.Unlock()
}

// failParked is told that the netpoller gave up: nobody will reap.
func (l *loop) failParked(err error) {
	l.mu.Lock()
	l.fail(err)
	l.mu.Unlock()
	l.bury()
	l.calls.kick()
}
