// SPDX-License-Identifier: MIT

package reactor

// errand is a call of the ring's register functions that the thread of a pinned
// loop makes, because the kernel lets nobody else.
type errand struct {
	do   func(ring) error
	done chan error
}

// onRing calls do with the ring where it may register things, and waits. On a
// pinned loop that is the thread, so that no callback may be the caller. It
// answers ErrClosed when there is no ring any more. The caller holds no lock.
func (l *loop) onRing(do func(ring) error) error {
	if !l.opts.Pinned {
		l.registering.Lock()
		defer l.registering.Unlock()
		if l.gone {
			return ErrClosed
		}
		return do(l.ring)
	}
	e := &errand{do, make(chan error, 1)}
	l.mu.Lock()
	if l.gone {
		l.mu.Unlock()
		return ErrClosed
	}
	l.errands = append(l.errands, e)
	l.wakeLocked()
	l.mu.Unlock()
	return <-e.done
}

// runErrands is the thread's part.
func (l *loop) runErrands() {
	l.mu.Lock()
	list := l.errands
	l.errands = nil
	l.mu.Unlock()
	for _, e := range list {
		e.done <- e.do(l.ring)
	}
}

// dropErrands answers those that nobody will run. The caller holds mu.
func (l *loop) dropErrands() {
	for _, e := range l.errands {
		e.done <- ErrClosed
	}
	l.errands = nil
}

// mayRegister panics when the caller is a callback of a pinned loop: what
// registers something waits for every thread.
func (r *Reactor) mayRegister() {
	for _, l := range r.loops {
		l.mayWait()
	}
}
