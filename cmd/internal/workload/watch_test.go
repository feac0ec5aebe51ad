// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/watch"
)

// turnsOf returns iterations whose batches took the given times: first of the floor, then
// of each watcher.
func turnsOf(events int, spent ...[]time.Duration) *watchTurns {
	nop := func() error { return nil }
	t := newWatchTurns(events, nop)
	for range spent[1:] {
		t.add(nop, nil)
	}
	for i, s := range spent {
		copy(t.spent[i], s)
		t.turns = len(s)
	}
	return t
}

func TestTurnsAreNetOfTheirFloor(t *testing.T) {
	const ms = time.Millisecond
	// The third batch was disturbed, once for the floor and once for a watcher.
	turns := turnsOf(10,
		[]time.Duration{3 * ms, 3 * ms, 90 * ms},
		[]time.Duration{4 * ms, 4 * ms, 4 * ms},
		[]time.Duration{5 * ms, 70 * ms, 5 * ms})
	cpu := time.Second
	s := measure.Sample{Ops: 1, CPU: &cpu, P50: 1, P99: 1, Max: 1, Heap: &measure.Heap{Objects: 3000}}
	if err := turns.report(1, &s); err != nil {
		t.Fatal(err)
	}
	if s.Ops != 3000 || s.Elapsed != 6*ms || s.Floor != 9*ms || turns.net(0) != 3*ms {
		t.Errorf("%d events, net %v and %v, floor %v", s.Ops, turns.net(0), s.Elapsed, s.Floor)
	}
	m := s.Metrics()
	if m[measure.NsPerOp] != 2000 || m[measure.FloorNsPerOp] != 3000 || m[measure.AllocsPerOp] != 1 {
		t.Errorf("metrics %v", m)
	}
	for _, name := range []string{measure.CPUUsPerOp, measure.P50Us, measure.MaxUs} {
		if v, ok := m[name]; ok {
			t.Errorf("%s is %v, want none: it would include the floor", name, v)
		}
	}
	turns.whole = true
	if err := turns.report(1, &s); err != nil || s.Elapsed != 15*ms || s.Floor != 9*ms {
		t.Errorf("whole %v, floor %v, %v", s.Elapsed, s.Floor, err)
	}
	turns.reset()
	if err := turns.report(0, &s); !errors.Is(err, ErrFloor) {
		t.Errorf("nothing measured: %v", err)
	}
	if err := turnsOf(1, []time.Duration{2}, []time.Duration{2}).report(0, &s); !errors.Is(err, ErrFloor) {
		t.Errorf("not longer than the floor: %v", err)
	}
}

func TestTurnsAlternate(t *testing.T) {
	var order []byte
	note := func(b byte) func() error {
		return func() error { order = append(order, b); return nil }
	}
	turns := newWatchTurns(400, note('f'))
	turns.add(note('a'), nil)
	turns.add(note('b'), nil)
	for range 2 {
		if err := turns.turn(); err != nil {
			t.Fatal(err)
		}
	}
	if string(order) != "ffaabbffaabb" || turns.measured() != 1600 {
		t.Errorf("%d events in %s", turns.measured(), order)
	}
	broken := errors.New("broken")
	turns.add(func() error { return broken }, nil)
	if err := turns.turn(); !errors.Is(err, broken) || turns.measured() != 1600 {
		t.Errorf("%d events, %v", turns.measured(), err)
	}
	for _, n := range []int{1, 10, 1000, 5000} {
		if got := newWatchTurns(n, nil).batch(); got != max(1000/n, 1) {
			t.Errorf("%d rounds of %d events", got, n)
		}
	}
}

// TestOldIterationsAreDropped checks that only the latest iterations are kept.
func TestOldIterationsAreDropped(t *testing.T) {
	turns := newWatchTurns(1000, func() error { return nil })
	for range keptTurns + 10 {
		if err := turns.turn(); err != nil {
			t.Fatal(err)
		}
	}
	if turns.measured() != 1000*(keptTurns+10) || slices.Contains(turns.spent[0], 0) {
		t.Errorf("%d events", turns.measured())
	}
}

func TestWatchCountsDescriptors(t *testing.T) {
	for w, want := range map[Watch]int{
		{Source: SourceEventFD, Active: 100}:            200,
		{Source: SourceEventFD, Active: 100, Idle: 900}: 1100,
		{Source: SourcePair, Active: 100}:               400,
		{Source: SourceWake}:                            0,
	} {
		if got := w.Descriptors(); got != want {
			t.Errorf("%+v: %d descriptors, want %d", w, got, want)
		}
	}
}

func TestWatchErrors(t *testing.T) {
	for says, change := range map[string]func(*Job){
		`source of events "sun"`: func(j *Job) { of[Watch](*j).Source = "sun" },
		"unknown mode":           func(j *Job) { of[Watch](*j).Mode = 9 },
		"0 active":               func(j *Job) { of[Watch](*j).Active = 0 },
		"-1 idle":                func(j *Job) { of[Watch](*j).Idle = -1 },
		"must be epoll or":       func(j *Job) { j.Engine = "auto" },
		"os":                     func(j *Job) { j.Engine = "os" },
	} {
		j := watchJob("epoll", Watch{Source: SourceEventFD, Active: 1})
		change(&j)
		if _, err := j.Run(t.Context()); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q is missing in %v", says, err)
		}
	}
}

func TestProbeWatch(t *testing.T) {
	if ProbeWatch("auto") == nil || ProbeWatch("abacus") == nil {
		t.Error("an unknown engine can be used")
	}
	t.Setenv(features.EnvBackend, "plain")
	if ProbeWatch(watch.ModeRing.String()) == nil {
		t.Error("io_uring can be used although it is switched off")
	}
}

func watchJob(engine string, w Watch) Job {
	return Job{
		Suite: "watch", Workload: "events", Engine: engine, Goroutines: 1,
		Warm: time.Millisecond, Measure: 60 * time.Millisecond, Work: &w,
	}
}
