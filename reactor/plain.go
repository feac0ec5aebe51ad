// SPDX-License-Identifier: MIT

package reactor

import "github.com/ringside-io/ringside/internal/sys"

// Turn is the right to make a plain system call in the place of an operation;
// see [Reactor.TryPlain].
type Turn struct{ l *loop }

// TryPlain reports whether a plain blocking system call is the better choice for
// the caller right now: it is alone on its loop, so that there is nobody to
// share a system call with, or every P of the program is taken by goroutines
// that compute. When it says true, the call counts as an operation in flight
// until [Turn.Done].
//
// Alone means that nothing is in flight and that the same goroutine was here
// last: a blocked call can keep its P for so long that others, who would like
// to read too, never get to be seen.
func (r *Reactor) TryPlain() (Turn, bool) {
	l := r.nearest()
	if l.sameVisitor() && l.busy.CompareAndSwap(0, 1) {
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

// sameVisitor reports whether the goroutine that was here last is here again, or
// nobody was. Frames of one goroutine lie close together; stacks take 2 KiB at
// least, so those of two lie further apart.
func (l *loop) sameVisitor() bool {
	const apart = 2 << 10
	me := sys.StackID()
	last := l.visitor.Swap(me)
	return last == 0 || me-last+apart-1 < 2*apart-1
}
