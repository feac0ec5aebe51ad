// SPDX-License-Identifier: MIT

package reactor

// Queue starts an operation and returns without waiting for it. It calls fn once, with
// the result; fn may be nil. Queue never waits: when the loop has [Options.InFlight]
// operations it returns ErrFull and does not call fn.
func (r *Reactor) Queue(op *Op, fn func(Result)) (ID, error) {
	return r.nearest().queue(op, fn, false)
}

// Stream starts a multishot operation and calls fn with each of its events, in order.
// The last event is the first for which [Result.More] is false, whatever ended the
// stream. An overflow of the completion queue ends a stream too: start it again.
func (r *Reactor) Stream(op *Op, fn func(Result)) (ID, error) {
	return r.nearest().queue(op, fn, true)
}

// Cancel asks the kernel to end an operation early. The callback is still called, with
// ECANCELED, or with the result when the operation completed first. Cancel returns
// ErrNotFound when the operation has ended.
func (r *Reactor) Cancel(id ID) error {
	if id.loop == nil {
		return ErrNotFound
	}
	return id.loop.cancel(id.id)
}
