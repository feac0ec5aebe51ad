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
// then far ahead of any ring. After such a delay the ring is avoided; from time
// to time one operation tries it, and ends that if it need not wait.
//
// Plain calls that keep their Ps can make that one wait, too, where nobody else
// would. So now and then all try.
type delays struct {
	nextTry atomic.Int64 // since epoch, in nanoseconds; 0: nothing is avoided
	trying  atomic.Bool  // who submits next is to yield
	tries   atomic.Int32 // since all tried
}

const (
	// starvation is the delay of a yield from which on it counts. An ordinary
	// one takes microseconds.
	starvation = 4 * time.Millisecond
	// joining is how long one goroutine may take to join, a slow machine and
	// what it did before included.
	joining = 30 * time.Microsecond
	// starvationPause is the time between two tries.
	starvationPause = 100 * time.Millisecond
	// allTry is which try is that of all.
	allTry = 5
)

var epoch = time.Now()

// yield lets other goroutines run and returns how long that took.
func yield() time.Duration {
	begin := time.Now()
	runtime.Gosched()
	return time.Since(begin)
}

// learn learns from a yield, during which others joined: that takes time, too,
// and is what a yield is for.
func (d *delays) learn(took time.Duration, joined int) {
	switch {
	case took-time.Duration(joined)*joining > starvation:
		d.nextTry.Store(int64(time.Since(epoch) + starvationPause))
	case d.avoiding():
		d.nextTry.Store(0)
	}
}

// avoiding reports whether the last yield took too long.
func (d *delays) avoiding() bool { return d.nextTry.Load() != 0 }

// starving reports whether the caller should keep off the ring: a yield took long,
// and it is not the caller's turn to try another.
func (d *delays) starving() bool {
	next := d.nextTry.Load()
	if next == 0 {
		return false
	}
	now := time.Since(epoch)
	if int64(now) < next || !d.nextTry.CompareAndSwap(next, int64(now+starvationPause)) {
		return true
	}
	if d.tries.Add(1) == allTry {
		d.tries.Store(0)
		d.nextTry.Store(0)
		return false
	}
	d.trying.Store(true)
	return false
}

// yields reports whether a submission that may gather company yields: not while
// that takes long, but for the one that tries.
func (d *delays) yields(mayGather bool) bool {
	if !d.avoiding() {
		return mayGather
	}
	return d.trying.CompareAndSwap(true, false)
}
