// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// rawBytes is how much the kernel may copy or pin in a submission of which the
// scheduler is not told: about 50 µs of work.
const rawBytes = 256 << 10

func (l *loop) do(e *uring.SQE, buf []byte, keep any, bytes int) (Result, error) {
	l.busy.Add(1)
	res, err := l.attempt(e, buf, keep, bytes)
	for err == nil && res.Res == -int32(syscall.ECANCELED) {
		// Nobody cancels here: the thread that submitted has exited.
		l.stats.retried.Add(1)
		res, err = l.attempt(e, buf, keep, bytes)
	}
	l.leave()
	return res, err
}

// attempt takes one operation from its submission to its completion.
func (l *loop) attempt(e *uring.SQE, buf []byte, keep any, bytes int) (Result, error) {
	s, err := l.acquire()
	if err != nil {
		return Result{}, err
	}
	v := &s.Value
	v.buf, v.keep = buf, keep
	if err := l.push(e, s.ID(), bytes); err != nil {
		l.release(s)
		return Result{}, err
	}
	<-v.done
	res, err := v.res, v.err
	l.release(s)
	return res, err
}

// push enters the operation into the submission queue and sees to it that
// somebody flushes.
func (l *loop) push(e *uring.SQE, id inflight.ID, bytes int) error {
	l.mu.Lock()
	if err := l.refuse(); err != nil {
		l.mu.Unlock()
		return err
	}
	sqe := l.ring.SQE()
	for sqe == nil {
		l.flush()
		if err := l.refuse(); err != nil {
			l.mu.Unlock()
			return err
		}
		if sqe = l.ring.SQE(); sqe == nil {
			l.mu.Unlock()
			runtime.Gosched() // the kernel refuses entries for now
			l.mu.Lock()
		}
	}
	*sqe = *e
	sqe.SetUserData(uint64(id))
	l.pending = append(l.pending, id)
	l.bytes += bytes
	switch {
	case l.leading && len(l.pending) < l.inKernel():
		l.mu.Unlock() // the leader flushes
		return nil
	case !l.leading && len(l.pending) < l.inKernel():
		// The device has work: others that are ready get the chance to join.
		l.leading = true
		l.mu.Unlock()
		runtime.Gosched()
		l.mu.Lock()
		l.leading = false
	}
	l.flush()
	l.mu.Unlock()
	l.reap()
	return nil
}

// inKernel returns about how many operations the kernel has. The caller holds
// mu.
func (l *loop) inKernel() int { return l.table.Held() - len(l.pending) }

// flush hands the pending entries to the kernel. The caller holds mu.
func (l *loop) flush() {
	for len(l.pending) > 0 && l.failed == nil {
		submit := l.ring.SubmitNoWait
		if l.bytes > rawBytes {
			submit = l.ring.Submit
		}
		n, err := submit()
		l.stats.enters.Add(1)
		l.taken(n)
		switch {
		case err == nil && n > 0:
			l.bytes = 0
		case err == nil, errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EBUSY), errors.Is(err, syscall.ENOMEM):
			// Out of memory for requests, or too many completions wait. Both
			// pass when operations end; the reaper flushes again then.
			if l.inKernel() > 0 {
				return
			}
			l.mu.Unlock()
			l.reap()
			runtime.Gosched()
			l.mu.Lock()
		default:
			l.fail(fmt.Errorf("reactor: ring failed: %w", err))
		}
	}
}

// taken removes the first n pending entries, which the kernel has.
func (l *loop) taken(n int) {
	if n <= 0 {
		return
	}
	l.stats.submitted.Add(uint64(n))
	l.pending = l.pending[:copy(l.pending, l.pending[n:])]
}

// fail ends all entries that the kernel has not taken and refuses new ones.
func (l *loop) fail(err error) {
	l.failed = err
	for _, id := range l.pending {
		if s := l.table.Lookup(id); s != nil {
			s.Value.err = err
			l.finish(s)
		}
	}
	l.pending = l.pending[:0]
	l.room.Broadcast()
}
