// SPDX-License-Identifier: MIT

package unet

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A goroutine that is started in a bubble of testing/synctest belongs to it, as
// do channels and timers that are made there: the bubble's clock is not the real
// one, the bubble waits for its goroutines to end, and nothing outside may use its
// channels. Sockets are of the world outside of bubbles, where data and real time
// come from. So drivers, timers of deadlines and the channels on which calls wait
// are made outside, whatever the caller is. As with package net, a call that waits
// in a bubble is then not durably blocked, and deadlines take real time.

// bubbled reports whether the current time is that of a bubble, whose clock gives
// times without a monotonic reading.
func bubbled(now time.Time) bool { return now == now.Round(0) } // which removes that reading

// outside runs f outside of any bubble and returns when it has ended.
func outside(f func()) {
	if !bubbled(time.Now()) {
		f()
		return
	}
	world.start()
	var done sync.Mutex // a wait for a mutex is not durable
	done.Lock()
	world.calls <- func() {
		defer done.Unlock()
		f()
	}
	done.Lock()
}

// world is a goroutine outside of bubbles. Programs without bubbles do not have
// it.
var world = outsider{calls: make(chan func())}

type outsider struct {
	calls   chan func() // made when the package is initialized, which is outside
	mu      sync.Mutex
	started bool
}

// start starts the goroutine from the garbage collector's cleanups, which run
// outside of bubbles.
func (o *outsider) start() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.started {
		return
	}
	o.started = true
	var running atomic.Bool
	runtime.AddCleanup(new([64]byte), func(running *atomic.Bool) {
		running.Store(true)
		go o.serve()
	}, &running)
	for !running.Load() {
		runtime.GC()
	}
}

func (o *outsider) serve() {
	for f := range o.calls {
		f()
	}
}

// newWake returns a channel on which a call waits.
func newWake() (ch chan struct{}) {
	outside(func() { ch = make(chan struct{}, 1) })
	return ch
}
