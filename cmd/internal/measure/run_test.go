// SPDX-License-Identifier: MIT

package measure

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// tiny is a round just long enough to have a window.
var tiny = Plan{Goroutines: 4, Warm: time.Millisecond, Measure: 20 * time.Millisecond}

func yieldOp(int) (Op, error) {
	return func() (int, error) { runtime.Gosched(); return 4096, nil }, nil
}

func TestRunCounts(t *testing.T) {
	s, err := Run(t.Context(), tiny, yieldOp)
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops == 0 || s.Bytes != s.Ops*4096 {
		t.Errorf("%d operations moved %d bytes", s.Ops, s.Bytes)
	}
	if s.Elapsed < tiny.Measure {
		t.Errorf("a window of %v lasted %v", tiny.Measure, s.Elapsed)
	}
	if s.P50 <= 0 || s.P50 > s.P99 || s.P99 > s.Max+s.Max/50 {
		t.Errorf("latencies out of order: p50 %v, p99 %v, max %v", s.P50, s.P99, s.Max)
	}
	if runtime.GOOS == "linux" && s.Threads < 1 {
		t.Error("no threads were counted")
	}
}

func TestRunWarmUpIsNotCounted(t *testing.T) {
	var calls atomic.Int64
	s, err := Run(t.Context(), tiny, func(int) (Op, error) {
		return func() (int, error) { calls.Add(1); runtime.Gosched(); return 1, nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops >= calls.Load() {
		t.Errorf("%d of %d operations were counted, want only those after the warm-up", s.Ops, calls.Load())
	}
}

func TestRunLatencyIsThatOfTheOperation(t *testing.T) {
	const nap = 2 * time.Millisecond
	s, err := Run(t.Context(), tiny, func(int) (Op, error) {
		return func() (int, error) { time.Sleep(nap); return 1, nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.P50 < nap*98/100 || s.Max < nap {
		t.Errorf("operations of %v: p50 %v, max %v", nap, s.P50, s.Max)
	}
}

var sink atomic.Pointer[[64]byte]

func TestRunSeesAllocations(t *testing.T) {
	s, err := Run(t.Context(), tiny, func(int) (Op, error) {
		return func() (int, error) { sink.Store(new([64]byte)); return 1, nil }, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	m := s.Metrics()
	if m[AllocsPerOp] < 0.99 || m[BytesPerOp] < 63 {
		t.Errorf("one allocation of 64 bytes per operation: %v allocs, %v bytes", m[AllocsPerOp], m[BytesPerOp])
	}
}

func TestRunAllocatesNothingItself(t *testing.T) {
	plan := tiny
	plan.Measure = 100 * time.Millisecond
	least := uint64(1 << 62)
	for n := 0; n < 5 && least > 40; n++ {
		s, err := Run(t.Context(), plan, yieldOp)
		if err != nil {
			t.Fatal(err)
		}
		least = min(least, s.Heap.Objects)
	}
	// The runtime may start a thread meanwhile, and allocates more in some windows. The
	// harness allocates neither per operation nor per sample of its thread counter.
	if least > 40 {
		t.Errorf("%d allocations in a window without any", least)
	}
}

func TestRecordAllocatesNothing(t *testing.T) {
	w := newWorker(nil)
	d := time.Nanosecond
	if n := ringtest.Allocations(1000, func() { w.record(d); d = min(d*3/2+1, 2<<histBits) }); n != 0 {
		t.Errorf("%v allocations per record", n)
	}
	if w.max < 1<<histBits {
		t.Errorf("the maximum %v was cut off at the histogram's range", w.max)
	}
}

func TestThreadCounter(t *testing.T) {
	c := newThreadCounter()
	defer c.close()
	got := 0
	if n := ringtest.Allocations(100, func() { got = c.count() }); n != 0 {
		t.Errorf("%v allocations per count", n)
	}
	if runtime.GOOS == "linux" && got < 1 {
		t.Errorf("%d threads", got)
	}
}

func TestRunSeesCPU(t *testing.T) {
	if (readUsage() == usage{}) {
		t.Skip("getrusage: not on this system")
	}
	plan := Plan{Goroutines: 1, Warm: time.Millisecond, Measure: 50 * time.Millisecond}
	var x atomic.Uint64
	s, err := Run(t.Context(), plan, func(int) (Op, error) {
		return func() (int, error) {
			for range 10000 {
				x.Add(1)
			}
			return 1, nil
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.CPU == nil || *s.CPU <= 0 {
		t.Errorf("no CPU time in a window of pure computation: %v", s.CPU)
	}
}

func TestRunErrors(t *testing.T) {
	boom := errors.New("boom")
	var n atomic.Int64
	failAfter := func(limit int64) func(int) (Op, error) {
		n.Store(0)
		return func(int) (Op, error) {
			return func() (int, error) {
				runtime.Gosched()
				if n.Add(1) > limit {
					return 0, boom
				}
				return 1, nil
			}, nil
		}
	}
	long := Plan{Goroutines: 4, Warm: time.Millisecond, Measure: time.Minute}
	if _, err := Run(t.Context(), long, failAfter(0)); !errors.Is(err, boom) {
		t.Errorf("failure while warming up: %v", err)
	}
	// Large enough to pass the warm-up, small enough to end the minute early.
	if _, err := Run(t.Context(), long, failAfter(1_000_000)); !errors.Is(err, boom) {
		t.Errorf("failure while measuring: %v", err)
	}
	if _, err := Run(t.Context(), tiny, func(g int) (Op, error) {
		if g == 2 {
			return nil, boom
		}
		return yieldOp(g)
	}); !errors.Is(err, boom) {
		t.Errorf("failure of newOp: %v", err)
	}
	if _, err := Run(t.Context(), Plan{}, yieldOp); err == nil {
		t.Error("a round without goroutines succeeded")
	}
}

func TestRunEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	plan := Plan{Goroutines: 2, Measure: time.Minute}
	var once atomic.Bool
	_, err := Run(ctx, plan, func(int) (Op, error) {
		return func() (int, error) {
			if once.CompareAndSwap(false, true) {
				cancel()
			}
			runtime.Gosched()
			return 1, nil
		}, nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

func TestMetricsOfUnknown(t *testing.T) {
	m := Sample{Ops: 10, Bytes: 1000, Elapsed: time.Second}.Metrics()
	for _, name := range []string{CPUUsPerOp, Threads, BytesPerOp, AllocsPerOp, P50Us, P99Us, MaxUs} {
		if v, ok := m[name]; ok {
			t.Errorf("%s is %v, want it unknown", name, v)
		}
	}
	if _, ok := (Sample{Ops: 10, Elapsed: time.Second}).Metrics()[MBPerS]; ok {
		t.Error("operations without bytes have a throughput")
	}
	if m[OpsPerS] != 10 || m[NsPerOp] != 1e8 || m[MBPerS] != 0.001 {
		t.Errorf("wrong rates: %v", m)
	}
}
