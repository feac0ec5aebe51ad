// SPDX-License-Identifier: MIT

package watch

// Post has f called by the goroutine that runs the loop, in the order of the
// calls. From a callback it is called in the turn after, at the earliest, so
// functions that post themselves do not hold up events. Post does not wait for f,
// and does not limit how many wait. It returns [ErrClosed] for a closed loop.
func (l *Loop) Post(f func()) error {
	l.mu.Lock()
	if l.over() {
		l.mu.Unlock()
		return ErrClosed
	}
	l.mail = append(l.mail, f)
	first := len(l.mail) == 1
	if first {
		l.state.Or(loopMail)
	}
	l.mu.Unlock()
	if first { // the loop takes all that have come until it looks
		l.w.Wake()
	}
	return nil
}

// deliver calls what was posted before and returns how many those were.
func (l *Loop) deliver() int {
	if l.next == len(l.box) {
		if l.state.Load()&loopMail == 0 {
			return 0
		}
		l.mu.Lock()
		l.box, l.mail, l.next = l.mail, l.box[:0], 0
		l.state.And(^loopMail)
		l.mu.Unlock()
	} // otherwise one has panicked before
	n := 0
	for l.next < len(l.box) && !l.over() {
		f := l.box[l.next]
		l.box[l.next] = nil
		l.next++
		n++
		f()
	}
	return n
}
