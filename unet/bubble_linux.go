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
	var done sync.Mutex // a wait for a mutex is not durable
	done.Lock()
	world.send(func() {
		defer done.Unlock()
		f()
	})
	done.Lock()
}

// world is a goroutine outside of bubbles. It runs while calls come from bubbles,
// and ends when none has come for a while.
var world = outsider{calls: make(chan func())}

const worldIdle = time.Second

type outsider struct {
	calls   chan func() // made when the package is initialized, which is outside
	mu      sync.Mutex
	running bool
}

// send has the goroutine call f. It starts the goroutine from the garbage
// collector's cleanups, which run outside of bubbles.
func (o *outsider) send(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.running {
		o.running = true
		var begun atomic.Bool
		runtime.AddCleanup(new([64]byte), func(begun *atomic.Bool) {
			begun.Store(true)
			go o.serve()
		}, &begun)
		for !begun.Load() {
			runtime.GC()
		}
	}
	o.calls <- f
}

func (o *outsider) serve() {
	idle := time.NewTimer(worldIdle)
	defer idle.Stop()
	for {
		select {
		case f := <-o.calls:
			f()
		case <-idle.C:
			if o.mu.TryLock() { // no call is on its way
				o.running = false
				o.mu.Unlock()
				return
			}
		}
		idle.Reset(worldIdle)
	}
}

// newWake returns a channel on which a call waits.
func newWake() chan struct{} {
	if bubbled(time.Now()) {
		return newWakeOutside()
	}
	return make(chan struct{}, 1)
}

func newWakeOutside() (ch chan struct{}) {
	outside(func() { ch = make(chan struct{}, 1) })
	return ch
}
