// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"syscall"
)

// Do starts an operation and waits for its end. It waits for room when the
// loop is full. A callback must not call it: on a pinned loop it would wait for
// itself, and panics instead, on a shared one it holds up the other callbacks.
func (r *Reactor) Do(op *Op) Result {
	l := r.route(op)
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

// begin starts an operation somebody will wait for. It gives up waiting for room
// when ctx is done.
func (l *loop) begin(ctx context.Context, op *Op) (*slot, error) {
	l.mayWait()
	s, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err = l.adopt(s, op); err == nil {
		err = l.startOne(s)
	}
	if err != nil {
		l.release(s)
		return nil, err
	}
	return s, nil
}

// DoContext is [Reactor.Do] that passes the end of ctx on to the kernel as a
// cancellation and then waits for the operation to end: the buffer is the
// caller's when it returns. An operation that was cancelled so has
// context.Cause(ctx) as its Err; one that completed all the same has its
// result. When the ring has failed nothing can be passed on: then it waits for
// the operation's own end, or for Close.
func (r *Reactor) DoContext(ctx context.Context, op *Op) Result {
	if ctx.Done() == nil {
		return r.Do(op)
	}
	if ctx.Err() != nil {
		return Result{Cause: context.Cause(ctx)}
	}
	l := r.route(op)
	l.busy.Add(1)
	defer l.busy.Add(-1)
	s, err := l.begin(ctx, op)
	if err != nil {
		return Result{Cause: err}
	}
	select {
	case <-s.Value.done:
	case <-ctx.Done():
		_ = l.cancel(s.ID()) // it may have ended by itself
		<-s.Value.done
		if v := &s.Value; v.res.Cause == nil && v.res.Res == -int32(syscall.ECANCELED) {
			v.res.Cause = context.Cause(ctx)
		}
	}
	res := s.Value.res
	l.release(s)
	return res
}
