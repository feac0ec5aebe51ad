// SPDX-License-Identifier: MIT

package watch

import (
	"context"
	"runtime"
	"time"
)

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

// end says whether the loop was closed, after freeing it.
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

// done says whether Run ends, and takes the request for it away.
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

// busy says whether something is left to do.
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
