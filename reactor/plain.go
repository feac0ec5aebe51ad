// SPDX-License-Identifier: MIT

package reactor

// Turn is the right to make a plain system call in the place of an operation; see
// [Reactor.TryPlain].
type Turn struct{ l *loop }

// TryPlain reports whether a plain blocking system call is better than an operation
// now. It is when the caller is alone on its loop, so that no other operation could
// share a system call with the caller's, or when goroutines that compute occupy every
// P. When TryPlain returns true, the caller makes its call and then calls [Turn.Done].
//
// The caller is alone when the loop has no operation in flight and the previous caller
// was the same goroutine. A blocked system call can keep its P for so long that other
// goroutines that want to read do not run.
func (r *Reactor) TryPlain() (Turn, bool) {
	l := r.nearest()
	if l.sameCaller() && l.busy.CompareAndSwap(0, 1) {
		return Turn{l}, true
	}
	if l.starvation.avoids() {
		l.busy.Add(1)
		return Turn{l}, true
	}
	return Turn{}, false
}

// Done ends the turn.
func (t Turn) Done() { t.l.busy.Add(-1) }
