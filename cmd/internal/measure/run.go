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
	"maps"
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

// worker repeats one operation and records it. It belongs to one goroutine; others read it only
// while that goroutine waits.
type worker struct {
	op      Op
	latency Histogram
	ops     int64
	bytes   int64
	max     time.Duration
	err     error
	// base lets time.Since read only the monotonic clock, at half the cost of time.Now.
	base time.Time
}

func newWorker(op Op) *worker {
	return &worker{op: op, base: time.Now()}
}

func (w *worker) reset() {
	w.latency = Histogram{}
	w.ops, w.bytes, w.max = 0, 0, 0
}

// repeat runs the operation until stop is set, but at least once: a short window on a busy machine
// may end before the goroutine gets a processor. It does not allocate.
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
	w.latency.Record(d)
}

// These are the names of metrics in result files, with their units. Percentiles and maximum are of
// the latency of an operation.
const (
	OpsPerS     = "ops_per_s"
	MBPerS      = "mb_per_s"
	NsPerOp     = "ns_per_op"
	CPUUsPerOp  = "cpu_us_per_op"
	P50Us       = "p50_us"
	P99Us       = "p99_us"
	MaxUs       = "max_us"
	Threads     = "threads"
	BytesPerOp  = "bytes_per_op"
	AllocsPerOp = "allocs_per_op"
	// UnitsPerS is the rate of the operations of Plan.Beside.
	UnitsPerS = "units_per_s"
	// FloorNsPerOp is the time that an operation would take without the measured mechanism.
	FloorNsPerOp = "floor_ns_per_op"
)

// Sample is the result of one round.
type Sample struct {
	// Ops is the number of completed operations. Bytes is the number of bytes that they moved, or 0
	// if they move none.
	Ops   int64 `json:"ops"`
	Bytes int64 `json:"bytes"`
	// Units is the number of operations of Plan.Beside, or nil if there are none.
	Units *int64 `json:"units,omitempty"`
	// Elapsed is the length of the window, until the end of the last operation.
	Elapsed time.Duration `json:"elapsed_ns"`
	// Floor is the time that the operations would have taken without the measured mechanism, or 0
	// if unknown. The workload documents whether Elapsed includes it.
	Floor time.Duration `json:"floor_ns,omitempty"`
	// CPU is the user and system time of the process in the window, or nil if unknown.
	CPU *time.Duration `json:"cpu_ns,omitempty"`
	// P50, P99 and Max are latencies of operations, counted from the end of the goroutine's
	// previous operation, so that waiting for a processor is included. They are 0 if single
	// operations were not timed.
	P50 time.Duration `json:"p50_ns"`
	P99 time.Duration `json:"p99_ns"`
	Max time.Duration `json:"max_ns"`
	// Heap counts heap allocations of the whole process in the window. It is nil for a program that
	// is not written in Go.
	Heap *Heap `json:"heap,omitempty"`
	// Threads is the largest observed number of OS threads, or 0 if unknown.
	Threads int `json:"threads,omitempty"`
	// DeviceReads is the number of bytes that the process read from devices in the window, as far
	// as the system accounts for them.
	DeviceReads int64 `json:"device_reads"`
	// Further are metrics of this workload only, by their names in result files.
	Further map[string]float64 `json:"further,omitempty"`
	// Backend and Reason are reported by the engine.
	Backend string `json:"backend,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// Heap counts allocations.
type Heap struct {
	Bytes   uint64 `json:"bytes"`
	Objects uint64 `json:"objects"`
}

// Metrics returns the sample by the names of result files. Unknown metrics are absent.
func (s Sample) Metrics() map[string]float64 {
	ops, seconds := float64(s.Ops), s.Elapsed.Seconds()
	m := map[string]float64{
		OpsPerS: ops / seconds,
		NsPerOp: float64(s.Elapsed.Nanoseconds()) / ops,
	}
	if s.Bytes > 0 {
		m[MBPerS] = float64(s.Bytes) / 1e6 / seconds
	}
	if s.Units != nil {
		m[UnitsPerS] = float64(*s.Units) / seconds
	}
	if s.Floor > 0 {
		m[FloorNsPerOp] = float64(s.Floor.Nanoseconds()) / ops
	}
	if s.Max > 0 {
		m[P50Us], m[P99Us], m[MaxUs] = micros(s.P50), micros(s.P99), micros(s.Max)
	}
	if s.Heap != nil {
		m[BytesPerOp] = float64(s.Heap.Bytes) / ops
		m[AllocsPerOp] = float64(s.Heap.Objects) / ops
	}
	if s.CPU != nil {
		m[CPUUsPerOp] = micros(*s.CPU) / ops
	}
	if s.Threads > 0 {
		m[Threads] = float64(s.Threads)
	}
	maps.Copy(m, s.Further)
	return m
}

func micros(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }

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
