// SPDX-License-Identifier: MIT

package watch

import "fmt"

// Check returns an error that names a violated invariant of the loop, or nil. Its time is
// proportional to the number of registrations. The goroutine that may call Add may call it.
func (l *Loop) Check() error {
	if err := l.timers.check(l.seq); err != nil {
		return err
	}
	l.mu.Lock()
	posted, marked := len(l.inbox), l.state.Load()&loopPosted != 0
	l.mu.Unlock()
	switch {
	case marked != (posted > 0):
		return fmt.Errorf("watch: %d functions posted, marked %v", posted, marked)
	case l.next > len(l.batch):
		return fmt.Errorf("watch: function %d of %d is being called", l.next, len(l.batch))
	}
	for _, h := range l.idle {
		if h.gone && !l.calling {
			return fmt.Errorf("watch: a removed hook is listed")
		}
	}
	return l.w.check()
}

func (h dueHeap) check(last uint64) error {
	for i := range h {
		switch d := &h[i]; {
		case d.t == nil:
			return fmt.Errorf("watch: no timer at %d", i)
		case d.t.index != i:
			return fmt.Errorf("watch: the timer at %d has the index %d", i, d.t.index)
		case d.seq > last:
			return fmt.Errorf("watch: a timer of number %d, of %d", d.seq, last)
		case i > 0 && d.before(&h[(i-1)/2]):
			return fmt.Errorf("watch: the timer at %d is due before the one above it", i)
		}
	}
	return nil
}

// check verifies the table of a loop's watcher.
func (w *Watcher) check() error {
	n := 0
	for fd := range w.entries {
		e := &w.entries[fd]
		if !e.on {
			if e.value != nil || e.found != 0 {
				return fmt.Errorf("watch: descriptor %d is removed and keeps %v", fd, e.found)
			}
			continue
		}
		n++
		if _, ok := e.value.(func(Events)); !ok {
			return fmt.Errorf("watch: descriptor %d has no function", fd)
		}
		if e.found&^e.asked() != 0 {
			return fmt.Errorf("watch: descriptor %d found %v, asked for %v", fd, e.found, e.asked())
		}
	}
	if n != w.n {
		return fmt.Errorf("watch: %d descriptors registered, counted %d", n, w.n)
	}
	return nil
}
