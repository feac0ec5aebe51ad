// SPDX-License-Identifier: MIT

package reactor

// Turn is the right to make a plain system call in the place of an operation;
// see [Reactor.TryPlain].
type Turn struct{ l *loop }

// TryPlain says whether a plain blocking system call is the better choice for
// the caller right now: its loop has nothing in flight, so that there is
// nobody to share a system call with, or every P of the program is taken by
// goroutines that compute. When it says true, the call counts as an operation
// in flight until [Turn.Done].
func (r *Reactor) TryPlain() (Turn, bool) {
	l := r.nearest()
	if l.busy.CompareAndSwap(0, 1) {
		return Turn{l}, true
	}
	if l.delays.starving() {
		l.busy.Add(1)
		return Turn{l}, true
	}
	return Turn{}, false
}

// Done ends the turn.
func (t Turn) Done() { t.l.busy.Add(-1) }
