// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// needRing skips the test where the ring cannot be opened.
func needRing(tb testing.TB, ring string) {
	tb.Helper()
	ringtest.NeedRing(tb)
	if ring == RingDefer {
		if err := features.HaveDeferTaskrun(); errors.Is(err, errors.ErrUnsupported) {
			ringtest.NeedKernel(tb, "deferred task work", "6.1")
		}
	}
}

func nopJob(ring string, batch int) Job {
	return Job{
		Suite: "ring", Workload: "nop", Engine: engine.NameRingside,
		Warm: time.Millisecond, Measure: 50 * time.Millisecond,
		Work: &Nop{Ring: ring, Batch: batch, First: 1<<40 + 7},
	}
}

func TestNop(t *testing.T) {
	for _, ring := range []string{RingDefault, RingDefer} {
		for _, batch := range []int{1, 16, 100, NopEntries} {
			t.Run(fmt.Sprintf("%s_%d", ring, batch), func(t *testing.T) {
				needRing(t, ring)
				j := nopJob(ring, batch)
				s, err := j.Run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if chunk := int64(of[Nop](j).Rounds() * batch); s.Ops == 0 || s.Ops%chunk != 0 {
					t.Errorf("%d operations are not whole chunks of %d", s.Ops, chunk)
				}
				m := s.Metrics()
				for _, name := range []string{"p50_us", "p99_us", "max_us", "mb_per_s"} {
					if v, ok := m[name]; ok {
						t.Errorf("%s is %v, but was not measured", name, v)
					}
				}
				if m["ns_per_op"] <= 0 {
					t.Errorf("metrics %v", m)
				}
			})
		}
	}
}

func TestNopAllocatesNothing(t *testing.T) {
	for _, ring := range []string{RingDefault, RingDefer} {
		t.Run(ring, func(t *testing.T) {
			needRing(t, ring)
			l, err := Nop{Ring: ring, Batch: 16}.newLoop()
			if err == nil {
				err = l.open()
			}
			if err != nil {
				t.Fatal(err)
			}
			n := ringtest.Allocations(100, func() { err = errors.Join(err, l.round()) })
			if err = errors.Join(err, l.close()); err != nil || n != 0 {
				t.Errorf("%v allocations per batch, %v", n, err)
			}
		})
	}
}

// TestNopNoticesWrongCompletions submits entries whose completions differ from those that the loop
// expects.
func TestNopNoticesWrongCompletions(t *testing.T) {
	needRing(t, RingDefault)
	for name, disturb := range map[string]func(*nopLoop){
		"lost":      func(l *nopLoop) { l.sent++ },
		"unchecked": func(l *nopLoop) { l.reaped-- },
		"foreign":   func(l *nopLoop) { l.ring.SQE().Nop() },
		"failed":    func(l *nopLoop) { l.ring.SQE().Close(-1).SetUserData(l.sent) },
	} {
		l, err := Nop{Ring: RingDefault, Batch: 4}.newLoop()
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(l.open(), l.round()); err != nil {
			t.Fatal(err)
		}
		disturb(l)
		if err := l.round(); err == nil {
			t.Errorf("%s: the error was not noticed", name)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	}
}

func TestNopRounds(t *testing.T) {
	for batch, want := range map[int]int{1: 1024, 16: 64, 128: 8, 100: 10, 256: 4} {
		if got := (Nop{Batch: batch}).Rounds(); got != want {
			t.Errorf("batch %d: %d rounds, want %d", batch, got, want)
		}
	}
}

func TestNopErrors(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Job)
		says   string
	}{
		"unknown ring":  {func(j *Job) { of[Nop](*j).Ring = "wedding" }, "wedding"},
		"no batch":      {func(j *Job) { of[Nop](*j).Batch = 0 }, "batch of 0"},
		"large batch":   {func(j *Job) { of[Nop](*j).Batch = NopEntries + 1 }, "batch of 257"},
		"other engine":  {func(j *Job) { j.Engine = engine.NameOS }, "engine os"},
		"no parameters": {func(j *Job) { j.Work = nil }, "ring/nop"},
	} {
		j := nopJob(RingDefault, 1)
		tc.change(&j)
		if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestProbeRing(t *testing.T) {
	for _, ring := range []string{RingDefault, RingDefer} {
		needRing(t, ring)
		if err := ProbeRing(ring); err != nil {
			t.Errorf("%s: %v", ring, err)
		}
		t.Setenv(features.EnvBackend, "plain")
		if err := ProbeRing(ring); !errors.Is(err, features.ErrForbidden) {
			t.Errorf("%s, switched off: %v", ring, err)
		}
		t.Setenv(features.EnvBackend, "")
	}
}

// BenchmarkNop is the loop of the suite "ring" without its harness; an operation is one
// NOP.
func BenchmarkNop(b *testing.B) {
	for _, ring := range []string{RingDefault, RingDefer} {
		for _, batch := range []int{1, 16, 128} {
			b.Run(fmt.Sprintf("ring=%s/batch=%d", ring, batch), func(b *testing.B) {
				needRing(b, ring)
				benchmarkNop(b, Nop{Ring: ring, Batch: batch})
			})
		}
	}
}

func benchmarkNop(b *testing.B, w Nop) {
	l, err := w.newLoop()
	if err == nil {
		err = l.open()
	}
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := l.close(); err != nil {
			b.Error(err)
		}
	}()
	b.ReportAllocs()
	b.ResetTimer()
	for done := 0; done < b.N; done += w.Batch {
		if err := l.round(); err != nil {
			b.Fatal(err)
		}
	}
}
