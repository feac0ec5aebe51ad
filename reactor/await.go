// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"syscall"
)

// Do starts an operation and waits until it has ended. While the loop has
// [Options.InFlight] operations, Do waits for one of them to end. A callback that calls
// Do delays the other callbacks of its loop, and may wait for one of them: use Queue.
func (r *Reactor) Do(op *Op) Result {
	l := r.nearest()
	l.busy.Add(1)
	s, err := l.begin(context.Background(), op)
	if err != nil {
		l.busy.Add(-1)
		return Result{Cause: err}
	}
	<-s.Value.done
	res := s.Value.res
	l.release(s)
	l.busy.Add(-1)
	return res
}

// DoContext is [Reactor.Do] with a context. When ctx ends, DoContext cancels the
// operation and waits until the kernel has ended it, so that the buffer belongs to the
// caller again when DoContext returns. The Err of an operation that was cancelled is
// context.Cause(ctx); an operation that completed first has its result. An operation
// whose ring has failed cannot be cancelled: DoContext waits until it ends, or until
// Close.
func (r *Reactor) DoContext(ctx context.Context, op *Op) Result {
	if ctx.Done() == nil {
		return r.Do(op)
	}
	if ctx.Err() != nil {
		return Result{Cause: context.Cause(ctx)}
	}
	l := r.nearest()
	l.busy.Add(1)
	defer l.busy.Add(-1)
	s, err := l.begin(ctx, op)
	if err != nil {
		return Result{Cause: err}
	}
	select {
	case <-s.Value.done:
	case <-ctx.Done():
		_ = l.cancel(s.ID()) // the operation may have ended meanwhile
		<-s.Value.done
		if v := &s.Value; v.res.Cause == nil && v.res.Res == -int32(syscall.ECANCELED) {
			v.res.Cause = context.Cause(ctx)
		}
	}
	res := s.Value.res
	l.release(s)
	return res
}
