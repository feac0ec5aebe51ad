// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/sys"
)

// starvation detects that goroutines wait long for a P. When goroutines that compute
// occupy every P, a leader that yields continues only after the scheduler's time slice
// of 10 ms, and so does every goroutine that waits for a completion. A plain system
// call keeps its P for a while and is much faster then. After two such delays in
// succession callers avoid the ring: a single one may be a pause of the whole process,
// such as a processor that a hypervisor or a CPU quota took away. From time to time one
// operation uses the ring again, and ends that state if its yield was short.
//
// Plain calls that keep their Ps can delay that operation although nothing else would.
// So every twentieth trial is made by all callers: it costs two long yields.
type starvation struct {
	nextTrial atomic.Int64 // nanoseconds since epoch; 0: the ring is not avoided
	trial     atomic.Bool  // the next submission yields
	trials    atomic.Int32 // since the last trial by all callers
	long      atomic.Bool  // the last yield was long
}

const (
	// joining is how long one goroutine may take to add its operation, on a slow
	// machine and including what it did before.
	joining = 30 * time.Microsecond
	// trialPause is the time between two trials.
	trialPause = 100 * time.Millisecond
	// trialsOfOne is the number of the trial that all callers make.
	trialsOfOne = 20
)

var epoch = time.Now()

// yield lets other goroutines run and returns how long that took.
func yield() time.Duration {
	begin := time.Now()
	runtime.Gosched()
	return time.Since(begin)
}

// learn takes the duration of a yield during which other goroutines added joined
// operations. Their time does not count as a delay.
func (d *starvation) learn(took time.Duration, joined int) {
	long := took-time.Duration(joined)*joining > ringloop.LongYield
	again := d.long.Swap(long) && long
	switch {
	case again:
		d.nextTrial.Store(int64(time.Since(epoch) + trialPause))
	case !long && d.active():
		d.nextTrial.Store(0)
	}
}

// active reports whether the last yields took too long.
func (d *starvation) active() bool { return d.nextTrial.Load() != 0 }

// avoids reports whether the caller should avoid the ring: a yield took long, and the
// caller is not chosen for a trial.
func (d *starvation) avoids() bool {
	next := d.nextTrial.Load()
	if next == 0 {
		return false
	}
	now := time.Since(epoch)
	if int64(now) < next || !d.nextTrial.CompareAndSwap(next, int64(now+trialPause)) {
		return true
	}
	if d.trials.Add(1) == trialsOfOne {
		d.trials.Store(0)
		d.nextTrial.Store(0)
		return false
	}
	d.trial.Store(true)
	return false
}

// yields reports whether a submission that may gather others yields. While the ring is
// avoided, only the trial yields.
func (d *starvation) yields(mayGather bool) bool {
	if !d.active() {
		return mayGather
	}
	return d.trial.CompareAndSwap(true, false)
}

// sameCaller reports whether the previous caller was the same goroutine, or there was
// none. Frames of one goroutine lie close together; a stack has at least 2 KiB, so
// frames of two goroutines lie further apart.
func (l *loop) sameCaller() bool {
	const apart = 2 << 10
	me := sys.StackID()
	last := l.lastCaller.Swap(me)
	return last == 0 || me-last+apart-1 < 2*apart-1
}
