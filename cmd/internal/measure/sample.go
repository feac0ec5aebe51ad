// SPDX-License-Identifier: MIT

package measure

import (
	"maps"
	"slices"
	"sync"
	"time"
)

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

// Summary describes the values of one metric from several rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns median, minimum and maximum. The median of an even number of values is the mean
// of the middle two. It does not change values, of which there must be at least one.
func Summarize(values []float64) Summary {
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = v[mid-1] + (v[mid]-v[mid-1])/2
	}
	return Summary{Median: median, Min: v[0], Max: v[len(v)-1]}
}

// Ratio summarizes values divided by against, pair by pair: a temporary disturbance of the machine
// affects both halves of a pair. It returns false if the lengths differ, if there are no pairs or
// if a divisor is zero.
func Ratio(values, against []float64) (Summary, bool) {
	if len(values) == 0 || len(values) != len(against) {
		return Summary{}, false
	}
	ratios := make([]float64, len(values))
	for i, v := range values {
		if against[i] == 0 {
			return Summary{}, false
		}
		ratios[i] = v / against[i]
	}
	return Summarize(ratios), true
}

// threadPeriod is the interval at which threads are counted: short enough to see a plateau, and
// long enough not to disturb it.
const threadPeriod = 25 * time.Millisecond

// threadSampler records the largest observed number of OS threads.
type threadSampler struct {
	counter *threadCounter
	quit    chan struct{}
	once    sync.Once
	done    sync.WaitGroup
	most    int
}

func startThreadSampler(counter *threadCounter) *threadSampler {
	s := &threadSampler{counter: counter, quit: make(chan struct{})}
	ticker := time.NewTicker(threadPeriod)
	s.most = s.counter.count()
	s.done.Go(func() {
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				s.most = max(s.most, s.counter.count())
			case <-s.quit:
				s.most = max(s.most, s.counter.count())
				return
			}
		}
	})
	return s
}

// stop ends the sampling and returns the largest count, or 0 if threads cannot be counted. It may
// be called again.
func (s *threadSampler) stop() int {
	s.once.Do(func() {
		close(s.quit)
		s.done.Wait()
	})
	return s.most
}
