// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/watch"
)

// needWatcher skips the test where the kernel lacks the backend, and names the reason.
func needWatcher(tb testing.TB, b watch.Mode) {
	tb.Helper()
	if b == watch.ModeRing {
		needRing(tb, RingDefer)
	}
	if err := ProbeWatch(b.String()); err != nil {
		tb.Fatal(err)
	}
}

// small are short workloads of each kind.
var small = []Watch{
	{Source: SourceEventFD, Mode: watch.Edge, Active: 1},
	{Source: SourceEventFD, Mode: watch.Edge, Active: 10, Idle: 25},
	{Source: SourceEventFD, Mode: watch.Edge, Active: 10, Idle: 25, Among: true},
	{Source: SourceEventFD, Mode: watch.Level, Active: 10},
	{Source: SourceEventFD, Mode: watch.OneShot, Active: 10},
	{Source: SourcePair, Mode: watch.Edge, Active: 10},
	{Source: SourcePair, Mode: watch.Level, Active: 3, Idle: 1},
	{Source: SourcePair, Mode: watch.OneShot, Active: 3},
}

func watchBackends(t *testing.T, run func(*testing.T, watch.Mode)) {
	for _, b := range []watch.Mode{watch.ModeEpoll, watch.ModeRing} {
		t.Run(b.String(), func(t *testing.T) {
			needWatcher(t, b)
			run(t, b)
		})
	}
}

func TestWatch(t *testing.T) {
	watchBackends(t, func(t *testing.T, b watch.Mode) {
		for _, w := range append(small, Watch{Source: SourceWake}) {
			j := watchJob(b.String(), w)
			before := len(ringtest.Descriptors(t, ""))
			s, err := j.Run(t.Context())
			if errors.Is(err, ErrFloor) { // On a machine that is this busy, times prove nothing.
				t.Logf("%+v: %v", w, err)
				continue
			}
			if err != nil || s.Ops == 0 || s.Backend != b.String() || (s.Floor > 0) == (w.Source == SourceWake) {
				t.Errorf("%+v: %+v, %v", w, s, err)
			}
			if after := len(ringtest.Descriptors(t, "")); after > before { // Fewer may be open: rings of an earlier test have closed.
				t.Errorf("%+v: %d descriptors open before, %d after", w, before, after)
			}
		}
	})
}

// onThread runs f on a goroutine that is locked to its thread, as watchers require.
func onThread(f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		f()
	}()
	<-done
}

func TestWatchRoundsAllocateNothing(t *testing.T) {
	watchBackends(t, func(t *testing.T, b watch.Mode) {
		for _, w := range small {
			onThread(func() {
				turns, closeAll, err := w.open(b)
				if err == nil {
					n := ringtest.Allocations(30, func() { err = errors.Join(err, turns.turn()) }) // The runtime may start a thread meanwhile.
					if n != 0 {
						t.Errorf("%+v: %v allocations per turn", w, n)
					}
				}
				if err := errors.Join(err, closeAll()); err != nil {
					t.Errorf("%+v: %v", w, err)
				}
			})
		}
		onThread(func() {
			l, err := newWakeLoop(b)
			if err != nil {
				t.Error(err)
				return
			}
			n := ringtest.Allocations(100, func() { err = errors.Join(err, l.round()) })
			if err := errors.Join(err, l.close()); err != nil || n != 0 {
				t.Errorf("%v allocations per wake, %v", n, err)
			}
		})
	})
}

// TestWatchRoundsReadWhatWasWritten checks that a round leaves no unread data.
func TestWatchRoundsReadWhatWasWritten(t *testing.T) {
	watchBackends(t, func(t *testing.T, b watch.Mode) {
		onThread(func() {
			s := &watchSet{}
			defer func() {
				if err := s.close(); err != nil {
					t.Error(err)
				}
			}()
			w := Watch{Source: SourceEventFD, Mode: watch.Edge, Active: 5, Idle: 10, Among: true}
			if err := s.openAll(w, 1); err != nil {
				t.Error(err)
				return
			}
			if len(s.bare) != 5 || len(s.busy[0]) != 5 || len(s.idle) != 10 || s.idle[2] > s.busy[0][2] {
				t.Errorf("bare %v, busy %v, idle %v", s.bare, s.busy, s.idle)
			}
			l, err := s.newLoop(w, b, s.busy[0])
			if err != nil || l.watcher.Len() != 15 {
				t.Error("not all descriptors are watched", err)
				return
			}
			if err := errors.Join(l.round(), s.floor(w)()); err != nil || l.got != 0 {
				t.Errorf("%d unexpected events, %v", l.got, err)
			}
			for _, fd := range append(s.bare, s.busy[0]...) {
				if err := l.io.read(fd); !errors.Is(err, unix.EAGAIN) {
					t.Errorf("unread data is left: %v", err)
				}
			}
		})
	})
}

// TestWatchNoticesBrokenDescriptors uses a descriptor whose reads return an error.
func TestWatchNoticesBrokenDescriptors(t *testing.T) {
	s := &watchSet{}
	defer s.close()
	w := Watch{Source: SourcePair, Mode: watch.Level, Active: 2}
	if err := s.openAll(w, 1); err != nil {
		t.Fatal(err)
	}
	l, err := s.newLoop(w, watch.ModeEpoll, s.busy[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := l.round(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Shutdown(s.busy[0][0], unix.SHUT_RDWR); err != nil {
		t.Fatal(err)
	}
	for range 3 { // Messages of the other pair are still in flight.
		if err = l.round(); err != nil {
			break
		}
	}
	if err == nil {
		t.Error("not noticed")
	}
}

// TestWatchWithoutDescriptors runs out of descriptors and must close those that it opened.
func TestWatchWithoutDescriptors(t *testing.T) {
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	before := len(ringtest.Descriptors(t, ""))
	few := old
	few.Cur = uint64(before + 50)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	_, err := watchJob("epoll", Watch{Source: SourceEventFD, Active: 100}).Run(t.Context())
	if e := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); e != nil {
		t.Fatal(e)
	}
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("got %v", err)
	}
	if after := len(ringtest.Descriptors(t, "")); after > before {
		t.Errorf("%d descriptors open before, %d after", before, after)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	j := watchJob("epoll", Watch{Source: SourcePair, Active: 3})
	j.Measure = time.Hour
	if _, err := j.Run(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// BenchmarkWatch is the loop of the suite "watch" without its harness, with both backends in one
// process. It reports ns per event of each net of the floor, and how many times cheaper the ring is.
func BenchmarkWatch(b *testing.B) {
	for _, w := range []Watch{
		{Source: SourceEventFD, Mode: watch.Edge, Active: 1},
		{Source: SourceEventFD, Mode: watch.Edge, Active: 10},
		{Source: SourceEventFD, Mode: watch.Edge, Active: 100},
		{Source: SourceEventFD, Mode: watch.Edge, Active: 1000},
		{Source: SourceEventFD, Mode: watch.Edge, Active: 100, Idle: 10_000},
		{Source: SourceEventFD, Mode: watch.Edge, Active: 100, Idle: 10_000, Among: true},
		{Source: SourceEventFD, Mode: watch.Level, Active: 1},
		{Source: SourceEventFD, Mode: watch.Level, Active: 10},
		{Source: SourceEventFD, Mode: watch.Level, Active: 100},
		{Source: SourceEventFD, Mode: watch.Level, Active: 1000},
		{Source: SourceEventFD, Mode: watch.OneShot, Active: 100},
		{Source: SourcePair, Mode: watch.Edge, Active: 100},
		{Source: SourcePair, Mode: watch.Level, Active: 100},
	} {
		b.Run(fmt.Sprintf("source=%s/mode=%v/active=%d/idle=%d/among=%v", w.Source, w.Mode, w.Active, w.Idle, w.Among),
			func(b *testing.B) {
				needWatcher(b, watch.ModeRing)
				var err error
				onThread(func() { err = benchmarkWatch(b, w) })
				if errors.Is(err, unix.EMFILE) {
					b.Skipf("descriptors: %v", err)
				}
				if err != nil {
					b.Fatal(err)
				}
			})
	}
}

func benchmarkWatch(b *testing.B, w Watch) (err error) {
	t, closeAll, err := w.open(watch.ModeEpoll, watch.ModeRing)
	defer func() { err = errors.Join(err, closeAll()) }()
	b.ReportAllocs()
	b.ResetTimer()
	for err == nil && t.measured() < int64(b.N) {
		err = t.turn()
	}
	if err != nil {
		return err
	}
	n := float64(t.measured())
	b.ReportMetric(0, "ns/op") // the sum of all: has no meaning
	b.ReportMetric(float64(t.floorTime())/n, "floor-ns/event")
	b.ReportMetric(float64(t.net(0))/n, "epoll-ns/event")
	b.ReportMetric(float64(t.net(1))/n, "uring-ns/event")
	if ring := t.net(1); ring > 0 {
		b.ReportMetric(float64(t.net(0))/float64(ring), "ratio")
	}
	return nil
}

// BenchmarkWatchWake wakes a waiting goroutine from another one and back.
func BenchmarkWatchWake(b *testing.B) {
	for _, backend := range []watch.Mode{watch.ModeEpoll, watch.ModeRing} {
		b.Run("engine="+backend.String(), func(b *testing.B) {
			needWatcher(b, backend)
			onThread(func() {
				l, err := newWakeLoop(backend)
				if err != nil {
					b.Error(err)
					return
				}
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N && err == nil; i++ {
					err = l.round()
				}
				if err := errors.Join(err, l.close()); err != nil {
					b.Error(err)
				}
			})
		})
	}
}
