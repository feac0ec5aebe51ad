// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// errRunning is a broken rule of the caller's.
var errRunning = errors.New("watch: the loop runs already")

// Loop calls functions when descriptors become ready, when timers expire, when
// other goroutines post them, on signals and when there is nothing else to do.
// All are called by the goroutine that is in [Loop.Run], one after the other, so
// that they need no locks among themselves; one that blocks holds up the others.
//
// Post, Stop, Drain, Close and Backend may be called by anybody at any time. The
// rest, and the methods of [Timer] and [Hook], are for the callbacks, and for
// times when the loop does not run. An event costs no allocation.
type Loop struct {
	w      *Watcher
	ready  func(Event) // call, bound once
	start  time.Time
	now    func() time.Duration      // since start
	wait   func(time.Duration) error // Watcher.Wait
	timers dueHeap
	seq    uint64 // of the last timer that was set

	idle    []*Hook
	rested  bool // the idle hooks were called after the last work, and are done
	calling bool // in the idle hooks
	signals []*Hook

	state atomic.Uint32
	mu    sync.Mutex // guards mail and the change of state by Run and Close
	mail  []func()
	box   []func() // taken out of mail, from next on
	next  int
}

// Bits of Loop.state.
const (
	loopRuns uint32 = 1 << iota
	loopStops
	loopDrains
	loopCloses
	loopMail // mail is not empty
)

// NewLoop returns a loop over a new watcher; see [New] for the options and the
// errors. The caller closes it.
func NewLoop(o Options) (*Loop, error) {
	w, err := New(o)
	if err != nil {
		return nil, err
	}
	l := &Loop{w: w, start: time.Now(), wait: w.Wait}
	l.ready = l.call
	l.now = func() time.Duration { return time.Since(l.start) }
	return l, nil
}

// Add has f called with what was found when fd is ready, as [Watcher.Add] says,
// which also tells the errors. The loop holds f until Remove, and never reads,
// writes or closes the descriptor.
func (l *Loop) Add(fd int, interest Events, trigger Trigger, f func(Events)) error {
	if l.over() {
		return ErrClosed
	}
	return l.w.Add(fd, interest, trigger, f) // a func in an interface is not allocated
}

// Modify replaces what fd is watched for and how, and keeps its function. What is
// ready is reported anew. The errors are those of [Watcher.Modify].
func (l *Loop) Modify(fd int, interest Events, trigger Trigger) error {
	var f any
	if e := l.w.at(fd); e != nil {
		f = e.value
	}
	return l.w.Modify(fd, interest, trigger, f)
}

// Remove ends the calls for fd: there is none after it has returned, also when
// something had been found before. A callback may remove any descriptor, its own
// too. Remove before closing the descriptor. The errors are those of
// [Watcher.Remove].
func (l *Loop) Remove(fd int) error { return l.w.Remove(fd) }

// Len returns how many descriptors are registered.
func (l *Loop) Len() int { return l.w.Len() }

// Backend says what the loop waits with, "epoll" or "io_uring", and why.
func (l *Loop) Backend() (name, reason string) { return l.w.Backend() }

// call is what Dispatch calls.
func (l *Loop) call(e Event) {
	if !l.over() {
		e.Value.(func(Events))(e.Events)
	}
}

// over says whether Close was called.
func (l *Loop) over() bool { return l.state.Load()&loopCloses != 0 }

// Close ends the loop and frees what it holds; descriptors that it watched stay
// open, and what was posted and not called is dropped. Callbacks end: the one in
// progress is the last. When the loop runs, Close does not wait for it: Run
// frees, and returns [ErrClosed]. Further calls do nothing.
func (l *Loop) Close() error {
	l.mu.Lock()
	s := l.state.Or(loopCloses)
	l.mu.Unlock()
	switch {
	case s&loopCloses != 0:
		return nil
	case s&loopRuns != 0:
		l.w.Wake()
		return nil
	}
	return l.free()
}

// free is called once, when nothing runs and nothing will.
func (l *Loop) free() error {
	for _, h := range l.signals {
		h.quit()
	}
	l.mu.Lock()
	l.mail = nil
	l.state.And(^loopMail)
	l.mu.Unlock()
	l.signals, l.idle, l.box, l.next = nil, nil, nil, 0
	for _, d := range l.timers {
		d.t.index = -1
	}
	l.timers = nil
	return l.w.Close()
}
