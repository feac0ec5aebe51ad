// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"runtime/pprof"
	"runtime/trace"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// reapBatch is how many completions are reaped at a time.
const reapBatch = 64

// tagCancel marks the user data of the SQE that cancels an operation, with that
// operation's ID. The highest bits of an ID are zero.
const tagCancel inflight.ID = 1 << 62

// reap delivers the completions in the CQ and submits what follows from them, until
// nothing follows.
func (l *loop) reap() {
	for {
		if l.reapAll() && l.refused.Load() {
			l.flushRefused()
		}
		if !l.runWork() {
			return
		}
	}
}

// reapAll delivers the completions in the CQ and reports whether there were any. While
// another goroutine reaps it returns at once.
func (l *loop) reapAll() bool {
	any := false
	for l.reaping.TryLock() {
		n := l.reapBatch()
		overflowed := l.overflowed
		l.reaping.Unlock()
		l.callbacks.notify()
		any = any || n > 0
		if n == 0 && overflowed {
			l.failOverflowed()
		}
		if n < reapBatch && (n == 0 || !overflowed) {
			break
		}
	}
	return any
}

// reapBatch delivers one batch and returns its size. The caller holds reaping.
func (l *loop) reapBatch() int {
	l.overflowed = false
	if l.gone {
		return 0
	}
	if l.opts.Trace && trace.IsEnabled() {
		defer trace.StartRegion(context.Background(), "reactor.reap").End()
	}
	n := l.ring.Reap(l.batch[:])
	if n > 0 {
		l.stats.completed.Add(uint64(n))
	}
	if over := l.ring.CQOverflow(); over != l.stats.overflows.Load() {
		l.overflowed = true
		l.stats.overflows.Store(over)
	}
	for _, c := range l.batch[:n] {
		l.deliver(c)
	}
	return n
}

// deliver passes one completion to its operation. A completion whose ID finds no slot
// belongs to an operation that has ended, and is dropped. The caller holds reaping.
func (l *loop) deliver(c uring.CQE) {
	id := inflight.ID(c.UserData)
	if id&tagCancel != 0 {
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
		l.callbacks.add(v.fn, Result{Res: c.Res, Flags: c.Flags})
		return
	case !v.answered: // a notification does not replace the result
		v.res = Result{Res: userErrno(c.Res), Flags: c.Flags}
		v.answered = true
		if c.Res < 0 {
			v.explain()
		}
	}
	if more || interrupted(v.res.Res) && l.retry(s) {
		return
	}
	l.end(s, v.res)
}

// reaperLabels are for the goroutines that wait in the netpoller.
var reaperLabels = pprof.WithLabels(context.Background(), pprof.Labels("ringside", "reactor"))

// reapParked is called when the netpoller reports that the ring is readable.
func (l *loop) reapParked() {
	if l.opts.Trace {
		pprof.SetGoroutineLabels(reaperLabels)
	}
	l.reaping.Lock() // another goroutine that reaps may have looked too early
	any := l.reapBatch() > 0
	l.reaping.Unlock()
	l.callbacks.notify()
	if any && l.refused.Load() {
		l.flushRefused()
	}
	l.reap()
	l.mu.Lock()
	if len(l.pending) > 0 && (!l.leading || l.starvation.active()) {
		l.flush() // SQEs that the kernel refused, or whose leader waits for a P
	}
	l.mu.Unlock()
}
