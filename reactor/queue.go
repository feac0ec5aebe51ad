// SPDX-License-Identifier: MIT

package reactor

import "time"

// Queue starts an operation and returns; fn is called with its result, once,
// or not at all when nil. It never waits: ErrFull says that the loop holds as
// many operations as it may, and that fn will not be called.
func (r *Reactor) Queue(op *Op, fn func(Result)) (ID, error) {
	return r.route(op).queue(op, fn, false, time.Time{})
}

// QueueWithDeadline is [Reactor.Queue] with a deadline, which travels with the
// operation as a linked timeout. An operation that the deadline ended has
// os.ErrDeadlineExceeded as its Err. Like every cancellation it cannot stop
// what a disk has begun: that ends with its own result, later.
func (r *Reactor) QueueWithDeadline(op *Op, deadline time.Time, fn func(Result)) (ID, error) {
	return r.route(op).queue(op, fn, false, deadline)
}

// Stream starts a multishot operation; fn is called with each of its events,
// in order, until one for which [Result.More] is false: the end, whatever its
// reason. A completion queue that overflowed ends a stream too: start it again.
// For streams that need provided buffers see [BufferGroup].
func (r *Reactor) Stream(op *Op, fn func(Result)) (ID, error) {
	return r.route(op).queue(op, fn, true, time.Time{})
}

func (l *loop) queue(op *Op, fn func(Result), stream bool, deadline time.Time) (ID, error) {
	s, err := l.tryAcquire()
	if err != nil {
		return ID{}, err
	}
	v := &s.Value
	v.fn, v.stream, v.detached = fn, stream, true
	if !deadline.IsZero() {
		if v.timeout == nil {
			v.timeout = new(linkedTimeout)
		}
		v.timeout.arm(deadline)
	}
	id := ID{l, s.ID()}
	l.calls.start(l)
	if err = l.adopt(s, op); err == nil {
		err = l.startOne(s)
	}
	if err != nil {
		l.release(s)
		return ID{}, err
	}
	return id, nil
}

// Cancel asks the kernel to end an operation early. Its callback is still
// called: with ECANCELED, or with the result when it was too late.
// ErrNotFound says that it is over already.
func (r *Reactor) Cancel(id ID) error {
	if id.loop == nil {
		return ErrNotFound
	}
	return id.loop.cancel(id.id)
}
