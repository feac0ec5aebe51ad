// SPDX-License-Identifier: MIT

package watch

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"runtime"
	"slices"
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
// Post, Stop, Drain, Close, Backend and Stats may be called by any goroutine at any time. The
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

// Stats returns the counters of the loop's watcher. It may be called by any goroutine
// at any time.
func (l *Loop) Stats() Stats { return l.w.Stats() }

// call is the function that Dispatch calls.
func (l *Loop) call(e Event) {
	if !l.over() {
		e.Value.(func(Events))(e.Events)
	}
}

// over reports whether Close was called.
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

// longest bounds a sleep, so that times stay far from overflowing.
const longest = time.Hour

// Run makes turns until the loop is stopped, has drained, is closed, or the
// context ends. In a turn it waits for events, calls back for them in the order
// that [Watcher.Dispatch] gives, then calls the timers that are due, then what
// was posted, and when all that was nothing, the idle hooks.
//
// It returns nil after [Loop.Stop] and [Loop.Drain], after which it may be called
// again, the context's cause when that ends, [ErrClosed] after [Loop.Close]; other
// errors are of the kernel and not to be expected. In each case it finishes the
// turn it is in, but for Close. It keeps its goroutine on one thread meanwhile. A
// panic of a callback goes up to the caller; the loop stays as it was.
func (l *Loop) Run(ctx context.Context) (err error) {
	if err := l.begin(); err != nil {
		return err
	}
	defer func() {
		if l.end() {
			err = ErrClosed
		}
	}()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	wake := context.AfterFunc(ctx, l.w.Wake)
	defer wake()
	for {
		if ctx.Err() != nil {
			l.flush()
			return context.Cause(ctx)
		}
		if l.done() {
			l.flush()
			return nil
		}
		if err := l.turn(); err != nil {
			return err
		}
	}
}

// Stop ends the Run in progress, or else the next one. What is left to do then
// waits for another Run.
func (l *Loop) Stop() {
	l.state.Or(loopStops)
	l.w.Wake()
}

// Drain ends the Run in progress, or else the next one, once nothing is left to
// do: no descriptor is registered, no timer is set, nothing is posted and no
// idle hook wants to be called again. Signal hooks do not count. Nothing is
// refused meanwhile, so a server closes its listeners first.
func (l *Loop) Drain() {
	l.state.Or(loopDrains)
	l.w.Wake()
}

func (l *Loop) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s := l.state.Load(); {
	case s&loopCloses != 0:
		return ErrClosed
	case s&loopRuns != 0:
		return errRunning
	}
	l.state.Or(loopRuns)
	return nil
}

// end reports whether the loop was closed, after freeing it.
func (l *Loop) end() bool {
	l.calling = false // a hook may have panicked
	l.mu.Lock()
	s := l.state.And(^loopRuns)
	l.mu.Unlock()
	if s&loopCloses == 0 {
		return false
	}
	_ = l.free() // nothing that was asked for can fail any more
	return true
}

// done reports whether Run ends, and takes the request for it away.
func (l *Loop) done() bool {
	s := l.state.Load()
	if s&(loopStops|loopDrains|loopCloses) == 0 {
		return false
	}
	switch {
	case s&loopCloses != 0:
	case s&loopStops != 0:
		l.state.And(^loopStops)
	case l.busy(s):
		return false
	default:
		l.state.And(^loopDrains)
	}
	return true
}

// busy reports whether something is left to do.
func (l *Loop) busy(s uint32) bool {
	return l.w.Len() > 0 || len(l.timers) > 0 || s&loopMail != 0 || l.next < len(l.box) ||
		len(l.idle) > 0 && !l.rested
}

// flush hands changes to the kernel, which holds removed files open until then.
func (l *Loop) flush() {
	if !l.over() && l.w.Prepare() == nil {
		_ = l.w.Wait(0) // what it finds is there for the next turn
	}
}

// turn waits once and calls back for what there is.
func (l *Loop) turn() error {
	if err := l.w.Prepare(); err != nil {
		return err
	}
	timeout := l.timeout()
	idling := timeout != 0 && len(l.idle) > 0 && !l.rested
	if idling {
		timeout = 0 // look before being idle
	}
	if err := l.wait(timeout); err != nil {
		return err
	}
	if l.w.Dispatch(l.ready)+l.fire()+l.deliver() > 0 {
		l.rested = false
	} else if idling && !l.over() {
		l.rested = !l.beIdle()
	}
	return nil
}

// timeout returns how long the loop may sleep, negative for without end.
func (l *Loop) timeout() time.Duration {
	if l.state.Load()&(loopStops|loopCloses|loopMail) != 0 || l.next < len(l.box) {
		return 0
	}
	if len(l.timers) == 0 {
		return -1
	}
	return min(max(l.timers[0].at-l.now(), 0), longest)
}

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

// Hook is a function that a [Loop] calls when it is idle or has got a signal.
type Hook struct {
	l       *Loop
	idle    func() bool
	gone    bool
	caught  chan os.Signal
	stop    chan struct{}
	stopped chan struct{}
}

// OnIdle has f called when there is nothing to do, before the loop sleeps. When f
// returns true it has more to do: the loop looks for other work, does that, and
// calls f again when there is none. When all hooks have returned false the loop
// sleeps, and calls them again after the next work. Hooks are called in the
// order in which they were added. A loop without any saves a system call for
// each sleep.
func (l *Loop) OnIdle(f func() bool) *Hook {
	h := &Hook{l: l, idle: f}
	l.idle = append(l.idle, h)
	l.rested = false
	return h
}

// OnSignal has f called after the process has got sig, which loses its default
// effect until the hook is removed or the loop closed. Signals that come before
// f could be called may be one call, as the system does it. It takes a goroutine.
func (l *Loop) OnSignal(sig os.Signal, f func()) *Hook {
	h := &Hook{l: l, caught: make(chan os.Signal, 1), stop: make(chan struct{}), stopped: make(chan struct{})}
	signal.Notify(h.caught, sig)
	l.signals = append(l.signals, h)
	go h.relay(func() {
		if !h.gone {
			f()
		}
	})
	return h
}

// Remove ends the calls of the hook: there is none after it has returned.
// Further calls do nothing.
func (h *Hook) Remove() {
	if h.gone {
		return
	}
	h.gone = true
	if h.caught != nil {
		h.quit()
		h.l.signals = slices.DeleteFunc(h.l.signals, func(o *Hook) bool { return o == h })
	} else if !h.l.calling {
		h.l.sweep()
	}
}

// relay posts a call for each signal.
func (h *Hook) relay(call func()) {
	defer close(h.stopped)
	for {
		select {
		case <-h.stop:
			return
		case <-h.caught:
			_ = h.l.Post(call) // a closed loop needs none
		}
	}
}

// quit ends relay.
func (h *Hook) quit() {
	signal.Stop(h.caught)
	close(h.stop)
	<-h.stopped
}

// beIdle calls the idle hooks and reports whether one wants to be called again. A
// hook that another adds is called in the next turn.
func (l *Loop) beIdle() bool {
	l.calling = true
	again, n := false, len(l.idle)
	for i := 0; i < n && !l.over(); i++ {
		if h := l.idle[i]; !h.gone && h.idle() && !h.gone {
			again = true
		}
	}
	again = again || len(l.idle) > n
	l.calling = false
	l.sweep()
	return again
}

// sweep forgets removed hooks.
func (l *Loop) sweep() {
	l.idle = slices.DeleteFunc(l.idle, func(h *Hook) bool { return h.gone })
}
