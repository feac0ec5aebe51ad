// SPDX-License-Identifier: MIT

package unet

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// A goroutine that is started in a bubble of testing/synctest belongs to the bubble, and
// so do channels and timers that are made in it. A bubble has its own clock and waits for
// its goroutines to end, and nothing outside may use its channels. Data and real time
// come from outside. So drivers, timers of deadlines and the channels on which calls wait
// are always made outside of bubbles. As with package net, a call that waits
// in a bubble is then not durably blocked, and deadlines take real time.

// bubbled reports whether now, the current time, comes from the clock of a bubble. That
// clock gives times without a monotonic reading.
func bubbled(now time.Time) bool { return now == now.Round(0) } // Round removes that reading

// outside runs f outside of any bubble and returns when it has ended.
func outside(f func()) {
	if !bubbled(time.Now()) {
		f()
		return
	}
	var done sync.Mutex // a wait for a mutex is not durable
	done.Lock()
	unbubbled.send(func() {
		defer done.Unlock()
		f()
	})
	done.Lock()
}

// unbubbled runs calls on a goroutine outside of bubbles. The goroutine ends when no
// call has come for a while.
var unbubbled = outsideRunner{calls: make(chan func())}

const outsideIdle = time.Second

type outsideRunner struct {
	calls   chan func() // made when the package is initialized, which is outside
	mu      sync.Mutex
	running bool
}

// send makes the goroutine call f. It starts the goroutine from the garbage
// collector's cleanups, which run outside of bubbles.
func (o *outsideRunner) send(f func()) {
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

// serve runs calls outside of the bubble until none came for outsideIdle.
func (o *outsideRunner) serve() {
	idle := time.NewTimer(outsideIdle)
	defer idle.Stop()
	for {
		select {
		case f := <-o.calls:
			f()
		case <-idle.C:
			if o.mu.TryLock() { // no send is in progress
				o.running = false
				o.mu.Unlock()
				return
			}
		}
		idle.Reset(outsideIdle)
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
