// SPDX-License-Identifier: MIT

package reactor

import "github.com/ringside-io/ringside/internal/inflight"

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
	l.working = true // what is added meanwhile comes after it
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
