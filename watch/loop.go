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

// errRunning reports a misuse: Run is called twice at a time.
var errRunning = errors.New("watch: the loop is already running")

// Loop calls functions when descriptors become ready, when timers expire, when other
// goroutines post them, on signals, and when it is idle. The goroutine in [Loop.Run] calls
// all of them, one after the other, so they need no locks among themselves. A function that
// blocks delays all others.
//
// Post, Stop, Drain, Close, Backend and Stats may be called by any goroutine at any
// time. Call the other methods, and the methods of [Timer] and [Hook], only in
// callbacks or while the loop does not run. An event costs no allocation.
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
	mu    sync.Mutex // guards inbox and the change of state by Run and Close
	inbox []func()
	batch []func() // taken out of inbox; those before next were called
	next  int
}

// Bits of Loop.state.
const (
	loopRuns uint32 = 1 << iota
	loopStops
	loopDrains
	loopCloses
	loopPosted // inbox is not empty
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

// Add registers fd: f is called with its events, as described for [Watcher.Add], which also
// lists the errors. The loop refers to f until Remove. It never reads, writes or closes the
// descriptor.
func (l *Loop) Add(fd int, interest Events, trigger Trigger, f func(Events)) error {
	if l.closed() {
		return ErrClosed
	}
	return l.w.Add(fd, interest, trigger, f) // a func in an interface is not allocated
}

// Modify replaces the events and the trigger of fd and keeps its function. Present
// readiness is reported again. It returns the errors of [Watcher.Modify].
func (l *Loop) Modify(fd int, interest Events, trigger Trigger) error {
	var f any
	if e := l.w.at(fd); e != nil {
		f = e.value
	}
	return l.w.Modify(fd, interest, trigger, f)
}

// Remove ends the registration of fd: its function is not called after Remove has
// returned. A callback may remove any descriptor, including its own. Remove a descriptor
// before closing it. It returns the errors of [Watcher.Remove].
func (l *Loop) Remove(fd int) error { return l.w.Remove(fd) }

// Len returns the number of registered descriptors.
func (l *Loop) Len() int { return l.w.Len() }

// Backend returns the backend in use, "epoll" or "io_uring", and the reason.
func (l *Loop) Backend() (name, reason string) { return l.w.Backend() }

// Stats returns the counters of the loop's watcher. It may be called by any goroutine
// at any time.
func (l *Loop) Stats() Stats { return l.w.Stats() }

// call is the function that Dispatch calls.
func (l *Loop) call(e Event) {
	if !l.closed() {
		e.Value.(func(Events))(e.Events)
	}
}

// closed reports whether Close was called.
func (l *Loop) closed() bool { return l.state.Load()&loopCloses != 0 }

// Close ends the loop and frees its resources. The watched descriptors stay open. Posted
// functions that were not called are dropped, and the callback in progress is the last one.
// If the loop runs, Close does not wait for it: Run frees the resources and returns
// [ErrClosed]. Further calls do nothing.
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

// free is called once, when no callback runs and none will.
func (l *Loop) free() error {
	for _, h := range l.signals {
		h.gone = true // Remove may follow
		h.quit()
	}
	l.mu.Lock()
	l.inbox = nil
	l.state.And(^loopPosted)
	l.mu.Unlock()
	l.signals, l.idle, l.batch, l.next = nil, nil, nil, 0
	for _, d := range l.timers {
		d.t.index = -1
	}
	l.timers = nil
	return l.w.Close()
}

// longest limits a sleep, so that times cannot overflow.
const longest = time.Hour

// Run performs turns until the loop is stopped, has drained or is closed, or the context
// ends.
// In a turn it waits for events and calls their functions in the order of
// [Watcher.Dispatch], then the functions of due timers, then posted functions. If there
// were none of these, it calls the idle hooks.
//
// It returns nil after [Loop.Stop] and [Loop.Drain], and may then be called again. It
// returns the context's cause when the context ends, and [ErrClosed] after
// [Loop.Close]. Other errors come from the kernel and are not expected. Except after
// Close it finishes the current turn. Run locks its goroutine to a thread until it
// returns. A panic of a callback propagates to the caller and leaves the loop usable.
func (l *Loop) Run(ctx context.Context) (err error) {
	if err := l.begin(); err != nil {
		return err
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer func() { // on the thread to which a ring belongs
		if l.end() {
			err = ErrClosed
		}
	}()
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

// Stop ends the Run in progress, or else the next one. Remaining work waits for another
// Run.
func (l *Loop) Stop() {
	l.state.Or(loopStops)
	l.w.Wake()
}

// Drain ends the Run in progress, or else the next one, when no work is left: no
// descriptor is registered, no timer is set, no function is posted, and all idle hooks have
// returned false. Signal hooks do not count. New work is accepted meanwhile, so a server
// closes its listeners first.
func (l *Loop) Drain() {
	l.state.Or(loopDrains)
	l.w.Wake()
}

// begin marks the loop as running, which only one call of Run may do.
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
	_ = l.free() // no later call depends on the result
	return true
}

// done reports whether Run ends, and clears the request to end.
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

// busy reports whether work is left.
func (l *Loop) busy(s uint32) bool {
	return l.w.Len() > 0 || len(l.timers) > 0 || s&loopPosted != 0 || l.next < len(l.batch) ||
		len(l.idle) > 0 && !l.rested
}

// flush hands changes to the kernel, which holds removed files open until then.
func (l *Loop) flush() {
	if !l.closed() && l.w.Prepare() == nil {
		_ = l.w.Wait(0) // the next turn reports the events that it finds
	}
}

// turn waits once and makes all callbacks that are due.
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
	} else if idling && !l.closed() {
		l.rested = !l.runIdleHooks()
	}
	return nil
}

// timeout returns how long the loop may sleep, negative for without end.
func (l *Loop) timeout() time.Duration {
	if l.state.Load()&(loopStops|loopCloses|loopPosted) != 0 || l.next < len(l.batch) {
		return 0
	}
	if len(l.timers) == 0 {
		return -1
	}
	return min(max(l.timers[0].at-l.now(), 0), longest)
}

// Post makes the loop's goroutine call f, in the order of the calls of Post. A function that
// a callback posts is called in the next turn at the earliest, so functions that post
// themselves do not delay events. Post does not wait for f, and the number of posted
// functions is not limited. It returns [ErrClosed] for a closed loop.
func (l *Loop) Post(f func()) error {
	l.mu.Lock()
	if l.closed() {
		l.mu.Unlock()
		return ErrClosed
	}
	l.inbox = append(l.inbox, f)
	first := len(l.inbox) == 1
	if first {
		l.state.Or(loopPosted)
	}
	l.mu.Unlock()
	if first { // the loop takes all functions at once
		l.w.Wake()
	}
	return nil
}

// deliver calls the functions that were posted before and returns their number.
func (l *Loop) deliver() int {
	if l.next == len(l.batch) {
		if l.state.Load()&loopPosted == 0 {
			return 0
		}
		l.mu.Lock()
		l.batch, l.inbox, l.next = l.inbox, l.batch[:0], 0
		l.state.And(^loopPosted)
		l.mu.Unlock()
	} // otherwise one has panicked before
	n := 0
	for l.next < len(l.batch) && !l.closed() {
		f := l.batch[l.next]
		l.batch[l.next] = nil
		l.next++
		n++
		f()
	}
	return n
}

// Hook is a function that a [Loop] calls when it is idle or after a signal.
type Hook struct {
	l       *Loop
	idle    func() bool
	gone    bool
	caught  chan os.Signal
	stop    chan struct{}
	stopped chan struct{}
}

// OnIdle makes the loop call f before it sleeps, when there is no other work. f reports
// whether it has more to do: the loop then checks for other work, does it, and calls f
// again. When all hooks have returned false the loop sleeps, and calls them again after the
// next work. Hooks are called in the order in which they were added. A loop without idle
// hooks saves a system call for each sleep.
func (l *Loop) OnIdle(f func() bool) *Hook {
	h := &Hook{l: l, idle: f}
	l.idle = append(l.idle, h)
	l.rested = false
	return h
}

// OnSignal makes the loop call f after the process has received sig. The signal loses its
// default effect until the hook is removed or the loop is closed. Signals that arrive
// before f is called may be merged into one call. The hook uses a goroutine. On a closed
// loop OnSignal does nothing.
func (l *Loop) OnSignal(sig os.Signal, f func()) *Hook {
	if l.closed() {
		return &Hook{l: l, gone: true} // nothing would end it
	}
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

// Remove ends the hook: its function is not called after Remove has returned. Further
// calls, and calls after the loop was closed, do nothing.
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

// runIdleHooks calls the idle hooks and reports whether one wants to be called again. A
// hook that another adds is called in the next turn.
func (l *Loop) runIdleHooks() bool {
	l.calling = true
	again, n := false, len(l.idle)
	for i := 0; i < n && !l.closed(); i++ {
		if h := l.idle[i]; !h.gone && h.idle() && !h.gone {
			again = true
		}
	}
	again = again || len(l.idle) > n
	l.calling = false
	l.sweep()
	return again
}

// sweep drops removed hooks.
func (l *Loop) sweep() {
	l.idle = slices.DeleteFunc(l.idle, func(h *Hook) bool { return h.gone })
}
