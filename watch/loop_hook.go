// SPDX-License-Identifier: MIT

package watch

import (
	"os"
	"os/signal"
	"slices"
)

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

// beIdle calls the idle hooks and says whether one wants to be called again. A
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
