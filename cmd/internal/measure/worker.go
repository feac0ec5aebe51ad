// SPDX-License-Identifier: MIT

package measure

import (
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// latencyCap is the longest time the histogram holds; longer ones count as this long. The exact
// maximum is kept beside it.
const latencyCap = 100 * time.Second

// newHistogram keeps latencies from 1 ns to latencyCap within one percent. Finer steps would cost
// cache lines that the operation under test needs.
func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(latencyCap), 2)
}

// worker repeats one operation and records it. It belongs to one goroutine; others read it only
// while that goroutine waits.
type worker struct {
	op      Op
	latency *hdrhistogram.Histogram
	ops     int64
	bytes   int64
	max     time.Duration
	err     error
	// base makes time.Since read the monotonic clock alone, at half the cost of time.Now.
	base time.Time
}

func newWorker(op Op) *worker {
	return &worker{op: op, latency: newHistogram(), base: time.Now()}
}

func (w *worker) reset() {
	w.latency.Reset()
	w.ops, w.bytes, w.max = 0, 0, 0
}

// repeat runs the operation until stop is set, but once at least: a short window on a busy machine
// may be over before the goroutine gets a processor. It allocates nothing.
func (w *worker) repeat(stop *atomic.Bool) error {
	last := time.Since(w.base)
	for {
		n, err := w.op()
		if err != nil {
			return err
		}
		now := time.Since(w.base)
		w.record(now - last)
		last = now
		w.ops++
		w.bytes += int64(n)
		if stop.Load() {
			return nil
		}
	}
}

func (w *worker) record(d time.Duration) {
	w.max = max(w.max, d)
	// The value is within the histogram's range, so there is no error to see.
	_ = w.latency.RecordValue(int64(min(d, latencyCap)))
}
