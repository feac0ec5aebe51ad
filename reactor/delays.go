// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"sync/atomic"
	"time"
)

// delays learns whether goroutines of this program wait long for a P. When
// every P is taken by goroutines that compute, a leader that yields comes back
// after the scheduler's time slice of 10 ms, and so does everybody who waits
// for a completion: a plain system call, which keeps its P for a while, is
// then far ahead of any ring.
type delays struct {
	until atomic.Int64 // since epoch, in nanoseconds
}

const (
	// starvation is the delay of a yield from which on it counts. An ordinary
	// one takes microseconds.
	starvation = 4 * time.Millisecond
	// starvationMemory is how long plain calls are preferred after one.
	starvationMemory = 100 * time.Millisecond
)

var epoch = time.Now()

// yield lets other goroutines run and measures how long that took.
func (d *delays) yield() {
	begin := time.Now()
	runtime.Gosched()
	if end := time.Now(); end.Sub(begin) > starvation {
		d.until.Store(int64(end.Add(starvationMemory).Sub(epoch)))
	}
}

// starving says whether a yield took long a short while ago.
func (d *delays) starving() bool {
	until := d.until.Load()
	if until == 0 {
		return false
	}
	if int64(time.Since(epoch)) < until {
		return true
	}
	d.until.CompareAndSwap(until, 0)
	return false
}
