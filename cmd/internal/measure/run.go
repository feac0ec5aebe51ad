// SPDX-License-Identifier: MIT

// Package measure runs workloads and returns comparable numbers.
//
// One round is one call of [Run]: goroutines repeat an operation, first unmeasured, then in a
// measured window. The harness does not allocate inside the window and reads the clock once per
// operation. So allocations, CPU time and latencies are those of the operation.
//
// Go returns no threads to the system and caches memory, so two engines in one process would
// influence each other. Each round therefore runs in a child process of its own. The parent uses
// [Process] and [Interleave], the child [ServeWorker].
package measure

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Op performs one operation and returns the number of bytes it moved. An error ends the round.
type Op func() (int, error)

// Plan describes a round, or a series of turns.
type Plan struct {
	// Goroutines is the number of goroutines that repeat the operation.
	Goroutines int
	// Warm is the time of operations before the first measured window. Measure is the length of the
	// window of a round.
	Warm, Measure time.Duration
	// Between, if not nil, is called before each measured window, after the warm-up.
	Between func() error
	// Adjust, if not nil, completes the sample of each window.
	Adjust func(*Sample) error
	// Beside are operations, such as computing, that one goroutine each repeats at the same time.
	// They are counted separately, as Units of the sample.
	Beside []Op
	// Turns, if not nil, replaces the one window of a round by many short ones.
	Turns Turns
}

// Turns are the windows of a process that takes turns with others. Between two windows the process
// is idle.
type Turns interface {
	// Next returns the length of the next window when it may begin, or false after the last one.
	Next() (time.Duration, bool)
	// Report takes the sample of the window.
	Report(Sample) error
}

// ErrDone is returned by an [Op] that has nothing left to do. It ends the window early without an
// error. The operation that returned it does not count.
var ErrDone = errors.New("nothing left to do")

// ErrNoOps is returned when no operation completed in the measured window.
var ErrNoOps = errors.New("no operation completed in the measured time")

// Run measures one round. It calls newOp once per goroutine, before any operation runs. Only that
// goroutine uses the returned Op. When an operation fails or ctx ends, all goroutines finish their
// current operation, and Run returns the error or the cause of ctx.
func Run(ctx context.Context, plan Plan, newOp func(goroutine int) (Op, error)) (Sample, error) {
	r := &round{failed: make(chan struct{}, 1), gate: make(chan struct{}), threads: newThreadCounter()}
	defer r.threads.close()
	for g := range plan.Goroutines {
		op, err := newOp(g)
		if err != nil {
			return Sample{}, err
		}
		r.workers = append(r.workers, newWorker(op))
	}
	if len(r.workers) == 0 {
		return Sample{}, errors.New("a round needs at least one goroutine")
	}
	for _, op := range plan.Beside {
		r.beside = append(r.beside, newWorker(op))
	}
	r.all = slices.Concat(r.workers, r.beside)
	first := r.gate
	for _, w := range r.all {
		r.exited.Go(func() { r.serve(w, first) })
	}
	defer r.finish()
	timer := time.NewTimer(plan.Warm)
	defer timer.Stop()
	r.prepare()
	if err := r.window(ctx, timer, plan.Warm); err != nil {
		return Sample{}, err
	}
	if plan.Turns != nil {
		return r.turns(ctx, timer, plan)
	}
	return r.measured(ctx, timer, plan, plan.Measure)
}

// turns measures windows until there is no next one. It returns the last sample.
func (r *round) turns(ctx context.Context, timer *time.Timer, plan Plan) (s Sample, err error) {
	for {
		d, more := plan.Turns.Next()
		if !more {
			return s, context.Cause(ctx)
		}
		s, err = r.measured(ctx, timer, plan, d)
		if err == nil {
			err = plan.Turns.Report(s)
		}
		if err != nil {
			return s, err
		}
	}
}

// round is the state shared by the goroutines of one Run.
type round struct {
	workers []*worker
	beside  []*worker
	all     []*worker // workers and beside
	threads *threadCounter
	stop    atomic.Bool
	over    bool // the next gate is the last one, and no window follows it
	failed  chan struct{}
	// gate is closed to release all workers into the next window at once. next is the gate after
	// it.
	gate, next chan struct{}
	idle       sync.WaitGroup
	exited     sync.WaitGroup
}

// serve runs the worker through all windows. Its goroutine starts before the first window, so that
// the goroutine's own memory is not counted.
func (r *round) serve(w *worker, gate chan struct{}) {
	for {
		<-gate
		if r.over {
			return
		}
		gate = r.next
		if err := w.repeat(&r.stop); err != nil {
			if !errors.Is(err, ErrDone) {
				w.err = err
			}
			r.stop.Store(true)
			select {
			case r.failed <- struct{}{}:
			default:
			}
		}
		r.idle.Done()
	}
}

// prepare makes everything for the next window that allocates or takes time.
func (r *round) prepare() {
	for _, w := range r.all {
		w.reset()
	}
	r.next = make(chan struct{})
	select {
	case <-r.failed: // A worker failed after it had left the window.
	default:
	}
}

// window lets the workers run for d and waits until each has stopped. It does not allocate unless
// there is an error. Call prepare before it.
func (r *round) window(ctx context.Context, timer *time.Timer, d time.Duration) error {
	timer.Reset(d)
	r.stop.Store(false)
	r.idle.Add(len(r.all))
	gate := r.gate
	r.gate = r.next
	close(gate)
	select {
	case <-timer.C:
	case <-r.failed:
	case <-ctx.Done():
	}
	r.stop.Store(true)
	r.idle.Wait()
	if err := r.firstError(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// finish ends the workers.
func (r *round) finish() {
	r.over = true
	close(r.gate)
	r.exited.Wait()
}

func (r *round) firstError() error {
	for _, w := range r.all {
		if w.err != nil {
			return w.err
		}
	}
	return nil
}

// longWindow is the length from which garbage is collected before a window, and threads are counted
// in it. Neither is worth its time for a turn.
const longWindow = 100 * time.Millisecond

// measured runs a window between two readings of every counter.
func (r *round) measured(ctx context.Context, timer *time.Timer, plan Plan, d time.Duration) (Sample, error) {
	if plan.Between != nil {
		if err := plan.Between(); err != nil {
			return Sample{}, err
		}
	}
	r.prepare()
	count := func() int { return r.threads.count() }
	if d >= longWindow || plan.Turns == nil {
		threads := startThreadSampler(r.threads)
		count = threads.stop
		defer threads.stop()
		// Collect the garbage of the preparation now, so that it is not counted for the operations.
		runtime.GC()
		runtime.GC()
	}
	var memBefore, memAfter runtime.MemStats
	runtime.ReadMemStats(&memBefore)
	usageBefore := readUsage()
	begin := time.Now()
	err := r.window(ctx, timer, d)
	elapsed := time.Since(begin)
	usageAfter := readUsage()
	runtime.ReadMemStats(&memAfter)
	if err != nil {
		return Sample{}, err
	}
	s := r.sum()
	if s.Ops == 0 {
		return Sample{}, fmt.Errorf("%w (%v)", ErrNoOps, d)
	}
	s.Elapsed = elapsed
	s.Heap = &Heap{
		Bytes:   memAfter.TotalAlloc - memBefore.TotalAlloc,
		Objects: memAfter.Mallocs - memBefore.Mallocs,
	}
	s.Threads = count()
	usageAfter.since(usageBefore, &s)
	if plan.Adjust != nil {
		err = plan.Adjust(&s)
	}
	return s, err
}

// sum adds up the results of the workers.
func (r *round) sum() Sample {
	var s Sample
	var all Histogram
	for _, w := range r.workers {
		s.Ops += w.ops
		s.Bytes += w.bytes
		s.Max = max(s.Max, w.max)
		all.Merge(&w.latency)
	}
	if r.beside != nil {
		s.Units = new(int64)
		for _, w := range r.beside {
			*s.Units += w.ops
		}
	}
	s.P50, s.P99 = all.Quantile(0.5), all.Quantile(0.99)
	return s
}

// Interleave runs each engine in turn, pairs times, and returns the results in the order of engines.
// The i-th results of all engines form one pair. Each pair begins with the engine after the one with
// which the last pair began (A B C, B C A, C A B), so that no engine is always far from the first.
// It stops at the first error.
func Interleave[T any](ctx context.Context, pairs int, engines []string,
	run func(ctx context.Context, engine string, pair int) (T, error),
) ([][]T, error) {
	results := make([][]T, len(engines))
	for pair := range pairs {
		for i := range engines {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			i = (i + pair) % len(engines)
			r, err := run(ctx, engines[i], pair)
			if err != nil {
				return nil, err
			}
			results[i] = append(results[i], r)
		}
	}
	return results, nil
}
