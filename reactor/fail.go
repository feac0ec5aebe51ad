// SPDX-License-Identifier: MIT

package reactor

import (
	"fmt"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/ringloop"
)

// A ring fails when io_uring_enter returns an error that is not temporary, or when the
// netpoller cannot wait for it. Then
//
//   - fail ends the operations that the kernel has not taken, and refuses new ones;
//   - operations that the kernel has taken end when their completions arrive, which
//     needs no submission, unless completions have overflowed the CQ;
//   - failTaken ends the operations whose completions can no longer be reaped.

// failure returns why the ring can no longer be used, nil if it can.
func (l *loop) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// fail marks the ring as failed. The caller holds mu.
func (l *loop) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	go l.opts.Logger.Error("io_uring failed; operations on it end with this error", "error", err) // without mu
	for _, e := range l.pending {
		if s := l.table.Lookup(inflight.ID(e.Raw().UserData)); s != nil {
			l.end(s, Result{Cause: l.failed})
		}
	}
	l.pending = nil
	for _, w := range l.work {
		if s := l.table.Lookup(w.id); s != nil && !w.cancel {
			l.end(s, Result{Cause: l.failed})
		}
	}
	clear(l.work) // runWork may be iterating over it
	l.callbacks.notify()
	l.released.send()
	l.idle.send()
	l.space.Broadcast()
	go l.reap() // completions may have overflowed before
}

// failTaken reaps the CQ and then ends the operations that the kernel has taken. The
// kernel may use their memory later, so their slots are never used again.
func (l *loop) failTaken() {
	l.reapAll()
	l.endTaken()
}

// endTaken is failTaken without reaping the CQ first.
func (l *loop) endTaken() {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.Each(func(s *slot) {
		s.Value.leaked = true
		ringloop.Leak(l) // the memory stays reachable even if the reactor is never closed
		l.end(s, Result{Cause: fmt.Errorf("%w: %w", l.failed, ErrTaken)})
	})
}

// failParked is called when the netpoller has failed: no goroutine would reap after that.
func (l *loop) failParked(err error) {
	l.mu.Lock()
	l.fail(err)
	l.mu.Unlock()
	l.failTaken()
	l.callbacks.notify()
}

// failOverflowed ends the operations in flight when completions have overflowed the CQ
// of a ring that has failed. Only io_uring_enter moves them into the CQ, and later
// completions queue up behind them.
func (l *loop) failOverflowed() {
	if l.failure() != nil {
		l.endTaken()
		l.callbacks.notify()
	}
}
