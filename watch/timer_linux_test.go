// SPDX-License-Identifier: MIT

package watch_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// timerModel records which timers are set and checks each call against them.
type timerModel struct {
	*testing.T
	rng    *rand.Rand
	l      *watch.Loop
	now    time.Duration
	seq    int
	last   int // seq when the loop last checked its timers
	timers []*modelTimer
	fired  int
}

type modelTimer struct {
	*watch.Timer
	at  time.Duration
	seq int
	on  bool
}

func newTimerModel(t *testing.T, b watch.Mode, seed uint64) *timerModel {
	m := &timerModel{T: t, rng: rand.New(rand.NewPCG(seed, 7)), l: newLoop(t, b)}
	m.l.SetClock(func() time.Duration { return m.now }, m.sleep)
	for i := range 30 {
		mt := &modelTimer{}
		mt.Timer = m.l.NewTimer(func() { m.fire(i) })
		m.timers = append(m.timers, mt)
	}
	return m
}

// next returns the timer that must be called next.
func (m *timerModel) next() *modelTimer {
	var first *modelTimer
	for _, mt := range m.timers {
		if mt.on && (first == nil || mt.at < first.at || mt.at == first.at && mt.seq < first.seq) {
			first = mt
		}
	}
	return first
}

// sleep checks that the loop sleeps until the next timer, and ends the sleep then, before,
// or after.
func (m *timerModel) sleep(d time.Duration) {
	want := time.Duration(-1)
	if first := m.next(); first != nil {
		want = max(first.at-m.now, 0)
	}
	if d != want {
		m.Fatalf("sleeps %v, want %v", d, want)
	}
	if d > 0 {
		m.now += d * time.Duration(m.rng.IntN(4)) / 2
	}
	m.last = m.seq
}

func (m *timerModel) fire(i int) {
	mt := m.timers[i]
	m.fired++
	switch {
	case !mt.on:
		m.Fatalf("timer %d is called and not set", i)
	case mt.at > m.now:
		m.Fatalf("timer %d is called %v early", i, mt.at-m.now)
	case mt != m.next():
		m.Fatalf("timer %d is called before one that was due earlier", i)
	case mt.seq > m.last:
		m.Fatalf("timer %d is called in the turn in which it was set", i)
	case mt.Active():
		m.Fatalf("timer %d is called and set", i)
	}
	mt.on = false
	for range m.rng.IntN(3) {
		m.change(m.rng.IntN(len(m.timers)))
	}
}

func (m *timerModel) change(i int) {
	mt := m.timers[i]
	if m.rng.IntN(3) == 0 {
		if was := mt.Stop(); was != mt.on {
			m.Fatalf("Stop of timer %d returned %v, want %v", i, was, mt.on)
		}
		mt.on = false
	} else {
		d := time.Duration(m.rng.IntN(12)-2) * time.Second
		m.seq++
		if was := mt.Reset(d); was != mt.on {
			m.Fatalf("Reset of timer %d returned %v, want %v", i, was, mt.on)
		}
		mt.on, mt.at, mt.seq = true, m.now+max(d, 0), m.seq
	}
	if mt.Active() != mt.on {
		m.Fatalf("Active of timer %d returned %v, want %v", i, mt.Active(), mt.on)
	}
	if err := m.l.Check(); err != nil {
		m.Fatal(err)
	}
}

func (m *timerModel) turn() {
	if err := m.l.Turn(); err != nil {
		m.Fatal(err)
	}
	if first := m.next(); first != nil && first.at <= m.now && first.seq <= m.last {
		m.Fatalf("a timer was due at %v and is not called at %v", first.at, m.now)
	}
}

// Promise: watch/timers-fire-order
func TestTimerModel(t *testing.T) {
	seeds := uint64(40)
	if testing.Short() {
		seeds = 8
	}
	overBackends(t, func(t *testing.T, b watch.Mode) {
		for seed := range seeds {
			t.Run(fmt.Sprint(seed), func(t *testing.T) {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				m := newTimerModel(t, b, seed)
				for range 300 {
					for range m.rng.IntN(4) {
						m.change(m.rng.IntN(len(m.timers)))
					}
					m.turn()
				}
				if m.fired < 50 {
					t.Errorf("%d calls are too few", m.fired)
				}
			})
		}
	})
}

// TestManyTimers sets ten thousand timers, stops half of them in random order, and checks
// that the others are called in the order of their times.
func TestManyTimers(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		var now time.Duration
		l.SetClock(func() time.Duration { return now }, func(d time.Duration) { now += max(d, 0) })
		const n = 10000
		rng := rand.New(rand.NewPCG(3, 3))
		var got, want []time.Duration
		var timers []*watch.Timer
		ats := make([]time.Duration, n)
		for i := range n {
			ats[i] = time.Duration(rng.Int64N(int64(3 * time.Hour)))
			timers = append(timers, l.AfterFunc(ats[i], func() {
				if now < ats[i] {
					t.Errorf("called %v early", ats[i]-now)
				}
				got = append(got, ats[i])
			}))
		}
		for _, i := range rng.Perm(n)[:n/2] {
			if !timers[i].Stop() {
				t.Fatal("Stop reported that a set timer was not set")
			}
		}
		if err := l.Check(); err != nil {
			t.Fatal(err)
		}
		for i, timer := range timers {
			if timer.Active() {
				want = append(want, ats[i])
			}
		}
		slices.Sort(want)
		l.Drain()
		if err := l.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%d calls out of order, want %d", len(got), len(want))
		}
	})
}

// TestTimersByTheClock uses the real clock.
// Promise: watch/timers-fire-order
func TestTimersByTheClock(t *testing.T) {
	overBackends(t, func(t *testing.T, b watch.Mode) {
		l := newLoop(t, b)
		start := time.Now()
		l.AfterFunc(1<<63-1, func() { t.Error("a timer of 292 years was called") })
		l.AfterFunc(20*time.Millisecond, func() {
			if d := time.Since(start); d < 20*time.Millisecond {
				t.Errorf("called after %v", d)
			}
			l.Stop()
		})
		run(t, l)
	})
}

func BenchmarkTimers(b *testing.B) {
	for _, n := range []int{100, 10000, 1000000} {
		b.Run(fmt.Sprintf("n=%d", n), func(b *testing.B) {
			l, err := watch.NewLoop(watch.Options{Mode: watch.ModeEpoll})
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			rng := rand.New(rand.NewPCG(1, 1))
			timers := make([]*watch.Timer, n)
			for i := range timers {
				timers[i] = l.AfterFunc(time.Duration(rng.Int64N(int64(time.Hour))), func() {})
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				t := timers[i*7919%n]
				t.Stop()
				t.Reset(time.Duration(i*6007%3600) * time.Second)
			}
		})
	}
}
