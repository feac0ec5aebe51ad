// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"runtime/trace"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/uring"
)

// makeSpace ensures that the submission queue has space for one SQE, or returns why the
// ring cannot be used. The caller holds mu, which is released while the kernel refuses
// SQEs, and does not hold reaping: space may depend on reaping.
func (l *loop) makeSpace() error {
	for l.full() {
		l.flush()
		if l.full() {
			l.awaitSpace()
		}
	}
	if l.gone {
		return ErrClosed
	}
	return l.failed
}

// full reports whether there is no space for an SQE, but may be later. The caller holds
// mu.
func (l *loop) full() bool {
	return l.failed == nil && !l.gone && l.ring.SQSpace() == 0
}

// awaitSpace waits while the kernel refuses SQEs. The caller holds mu, which is
// released meanwhile.
func (l *loop) awaitSpace() {
	l.mu.Unlock()
	reaped := l.reapAll() // too many completions may be the reason
	l.mu.Lock()
	if !reaped && l.full() && l.refused.Load() {
		l.space.Wait()
	}
}

// fillSQE fills the SQE of an operation. There is space for it. After that the slot may
// be written to by the goroutine that reaps. The caller holds mu.
func (l *loop) fillSQE(s *slot) {
	v := &s.Value
	sqe := l.nextSQE()
	*sqe = v.op.SQE
	sqe.SetUserData(uint64(s.ID()))
	l.bytes += v.op.Bytes
	if cancelsOthers(sqe.Raw().Opcode) {
		l.cancels++
	}
	v.cancels = l.cancels
	s.Arm()
}

// cancelsOthers reports whether an SQE of the given opcode may cancel other operations.
func cancelsOthers(opcode uint8) bool {
	switch uring.Op(opcode) {
	case uring.OpAsyncCancel, uring.OpPollRemove, uring.OpTimeoutRemove:
		return true
	}
	return false
}

// fillCancel fills the SQE of a cancellation. Its target is this use of the slot, so
// that no other operation can be cancelled. There is space for it. The caller holds mu.
func (l *loop) fillCancel(id inflight.ID) {
	l.nextSQE().Cancel(uint64(id)).SetUserData(uint64(id | tagCancel))
}

// nextSQE returns an SQE to fill. There is space for it. The caller holds mu.
func (l *loop) nextSQE() *uring.SQE {
	e := l.ring.SQE()
	l.pending = append(l.pending, e)
	return e
}

// rawBytes is how much the kernel may copy or pin in a submission by a raw system call,
// which does not enter the scheduler: about 50 µs of work.
const rawBytes = 256 << 10

// flush submits the pending SQEs. The caller holds mu.
func (l *loop) flush() {
	if l.opts.Trace && trace.IsEnabled() {
		defer trace.StartRegion(context.Background(), "reactor.submit").End()
	}
	for len(l.pending) > 0 && l.failed == nil && !l.gone {
		submit := l.ring.SubmitNoWait
		if l.bytes > rawBytes {
			submit = l.ring.Submit
		}
		l.noteThread(int32(l.ring.Submitter()))
		n, err := submit()
		l.stats.enters.Add(1)
		l.taken(n)
		if err != nil && !ringloop.Temporary(err) {
			l.fail(err)
			return
		}
		if err != nil || n == 0 {
			l.submitLater()
			return
		}
	}
	l.setRefused(false)
}

// noteThread notes which thread submits the pending SQEs. The caller holds mu.
func (l *loop) noteThread(thread int32) {
	for _, e := range l.pending {
		s := l.table.Lookup(inflight.ID(e.Raw().UserData))
		if s != nil && s.Value.thread.Load() != thread {
			s.Value.thread.Store(thread)
		}
	}
}

// taken removes the first n pending SQEs, which the kernel has taken. The caller holds
// mu.
func (l *loop) taken(n int) {
	if n <= 0 {
		return
	}
	l.stats.submitted.Add(uint64(n))
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
	if len(l.pending) == 0 {
		l.bytes = 0
	}
	l.space.Broadcast()
}

// retryPause is the time after which SQEs that the kernel refused are submitted again.
const retryPause = time.Millisecond

// submitLater notes that the kernel refuses SQEs for now: it lacks memory for requests,
// or too many completions are in the CQ. Every reap submits again, and so does a timer,
// because there may be nothing to reap. The caller holds mu.
func (l *loop) submitLater() {
	l.setRefused(true)
	if !l.retryTimer {
		l.retryTimer = true
		time.AfterFunc(retryPause, l.retryRefused)
	}
}

// setRefused is refused.Store, cheaper when the value is the same. The caller holds mu.
func (l *loop) setRefused(now bool) {
	if l.refused.Load() != now {
		l.refused.Store(now)
	}
}

// retryRefused is the timer's function.
func (l *loop) retryRefused() {
	l.mu.Lock()
	l.retryTimer = false
	l.mu.Unlock()
	l.flushRefused()
	l.reap()
}

// flushRefused submits what the kernel refused before.
func (l *loop) flushRefused() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.refused.Load() {
		l.flush()
	}
}

// work is a submission for later: of an operation that is submitted again, or of its
// cancellation. The goroutine that finds the reason for it holds reaping, or runs in a
// timer, and must not wait for space.
type work struct {
	id     inflight.ID
	cancel bool // cancel the operation instead of submitting it again
}

// addWork adds a submission for later. A caller that does not call runWork itself must
// ensure that another goroutine does. The caller holds mu.
func (l *loop) addWork(w work) {
	l.work = append(l.work, w)
	l.hasWork.Store(true)
}

// runWork submits the work, in the order in which it was added, and reports whether
// there was any: then the caller must reap. The caller holds neither mu nor reaping.
func (l *loop) runWork() bool {
	if !l.hasWork.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.work) == 0 || l.working {
		return false
	}
	l.working = true // work that is added meanwhile comes after it
	for i := 0; i < len(l.work); i++ {
		w := l.work[i]
		l.work[i] = work{} // fail ends the operations of the rest
		l.runOne(w)
	}
	l.working = false
	clear(l.work)
	l.work = l.work[:0]
	l.hasWork.Store(false)
	l.flush()
	return true
}

// runOne fills the SQE of one submission. The caller holds mu, which may be released
// meanwhile.
func (l *loop) runOne(w work) {
	s := l.table.Lookup(w.id)
	if s == nil {
		return // the operation has ended
	}
	err := l.makeSpace()
	if err == nil && !w.cancel {
		err = l.refusalLocked()
	}
	switch {
	case l.table.Lookup(w.id) != s: // it has ended meanwhile
	case w.cancel && err != nil: // the ring has failed
	case w.cancel:
		l.fillCancel(w.id)
	case err != nil:
		l.end(s, Result{Cause: err})
	default:
		l.fillSQE(s)
	}
}
