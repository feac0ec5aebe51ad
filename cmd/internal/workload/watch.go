// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/watch"
)

// Sources of the events that [Watch] measures.
const (
	// SourceEventFD are eventfds that are all signaled, awaited and read.
	SourceEventFD = "eventfd"
	// SourcePair are pairs of sockets, each with one message on its way: what one end receives it
	// sends back.
	SourcePair = "socketpair"
	// SourceWake is another goroutine that wakes the one that waits.
	SourceWake = "wake"
)

// maxWatched bounds the descriptors of each kind.
const maxWatched = 1 << 20

// Watch is what package watch takes for an event: the time of rounds that get events, beside that of
// the same writes and reads on unwatched descriptors. Of eventfds it is net of these. Of
// pairs of sockets it is not: their writes and reads allocate memory, and from one process to the
// next vary by as much as watching takes.
type Watch struct {
	Source string `json:"source"`
	// Mode is how descriptors are watched, Active how many of them (or pairs) have an event in
	// each round, Idle how many eventfds never have one. A wake has none of the three.
	Mode   watch.Trigger `json:"mode"`
	Active int           `json:"active"`
	Idle   int           `json:"idle"`
	// Among spreads the idle evenly between the active, by number and in memory.
	Among bool `json:"among,omitempty"`
}

// Descriptors is how many of them the workload opens for one watcher, without the watcher's own.
func (w Watch) Descriptors() int { return w.descriptors(1) }

// descriptors counts the watched ones of each watcher, the unwatched ones, and the idle.
func (w Watch) descriptors(watchers int) int {
	switch w.Source {
	case SourceEventFD:
		return (watchers+1)*w.Active + w.Idle
	case SourcePair:
		return 2*(watchers+1)*w.Active + w.Idle
	}
	return 0
}

func (w Watch) check() error {
	switch w.Source {
	case SourceWake:
		return nil
	case SourceEventFD, SourcePair:
	default:
		return fmt.Errorf("unknown source of events %q", w.Source)
	}
	switch {
	case w.Mode > watch.OneShot:
		return fmt.Errorf("unknown mode %d", w.Mode)
	case w.Active < 1 || w.Active > maxWatched || w.Idle < 0 || w.Idle > maxWatched:
		return fmt.Errorf("%d active and %d idle descriptors: must be 1 to %d, and 0 to %[3]d", w.Active, w.Idle, maxWatched)
	}
	return nil
}

// backend is the mechanism that a job names as its engine.
func (j Job) backend() (watch.Mode, error) {
	b, err := features.ParseMode(j.Engine)
	if err == nil && b != watch.ModeEpoll && b != watch.ModeRing {
		err = fmt.Errorf("engine %q: must be %v or %v", j.Engine, watch.ModeEpoll, watch.ModeRing)
	}
	return b, err
}

// ProbeWatch reports whether this process can watch with the engine, "epoll" or "io_uring".
func ProbeWatch(engine string) error {
	b, err := Job{Engine: engine}.backend()
	if err != nil {
		return err
	}
	w, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return err
	}
	return w.Close()
}

// watch runs the round in a goroutine that keeps its thread: that is where a watcher belongs.
func (j Job) watch(ctx context.Context) (measure.Sample, error) {
	if err := j.Watch.check(); err != nil {
		return measure.Sample{}, err
	}
	b, err := j.backend()
	if err != nil {
		return measure.Sample{}, err
	}
	if j.Watch.Source == SourceWake {
		return j.wakes(ctx, b)
	}
	return j.events(ctx, b)
}

// events measures rounds and their floor in turns.
func (j Job) events(ctx context.Context, b watch.Mode) (s measure.Sample, err error) {
	var t *watchTurns
	closeAll := func() error { return nil }
	defer func() { err = errors.Join(err, closeAll()) }()
	op := func() (int, error) {
		if t == nil {
			runtime.LockOSThread()
			var err error
			if t, closeAll, err = j.Watch.open(b); err != nil {
				return 0, err
			}
		}
		return 0, t.turn()
	}
	plan := measure.Plan{
		Goroutines: 1, Warm: j.Warm, Measure: j.Measure,
		Between: func() error {
			if t != nil { // The warm-up may have been too short for a turn.
				t.reset()
			}
			return nil
		},
	}
	s, err = measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
	if err != nil {
		return measure.Sample{}, err
	}
	err = t.report(0, &s)
	s.Backend, s.Reason = t.backends[0]()
	return s, err
}

// wakes measures wakes one by one.
func (j Job) wakes(ctx context.Context, b watch.Mode) (s measure.Sample, err error) {
	var l *wakeLoop
	defer func() {
		if l != nil {
			err = errors.Join(err, l.close())
		}
	}()
	op := func() (int, error) {
		if l == nil {
			runtime.LockOSThread()
			var err error
			if l, err = newWakeLoop(b); err != nil {
				return 0, err
			}
		}
		return 0, l.round()
	}
	plan := measure.Plan{Goroutines: 1, Warm: j.Warm, Measure: j.Measure}
	s, err = measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
	if err != nil {
		return measure.Sample{}, err
	}
	s.Backend, s.Reason = l.watcher.Backend()
	return s, nil
}

// ErrFloor is returned when a window was too short, or too disturbed, to tell watching from what it
// is compared to.
var ErrFloor = errors.New("watching took no longer than the writes and reads alone: measure for longer with --duration")

const (
	// watchChunk is about how many events pass between two readings of the clock.
	watchChunk = 1000
	// keptTurns is how many turns are remembered, which is some seconds of them.
	keptTurns = 1 << 14
)

// watchTurns runs the rounds of one watcher or more and their floor, the work that all rounds have
// in common, in small alternating batches: a change of the machine's pace hits all of them. What
// counts is the median of the batches, as a disturbance within one, of a floor that is most of the
// time, would be taken for the time of watching.
type watchTurns struct {
	floor  func() error
	rounds []func() error
	// backends return the backends of the watchers of the rounds.
	backends []func() (name, reason string)
	// events is how many a round has.
	events int
	// whole reports the time of the rounds with that of the floor in it.
	whole bool
	// turns counts calls of turn, spent has the time of the last batches: of the floor, then of
	// each round.
	turns int
	spent [][]time.Duration
}

func newWatchTurns(events int, floor func() error) *watchTurns {
	return &watchTurns{events: events, floor: floor, spent: [][]time.Duration{make([]time.Duration, keptTurns)}}
}

// add takes part in the turns from now on.
func (t *watchTurns) add(round func() error, backend func() (name, reason string)) {
	t.rounds = append(t.rounds, round)
	t.backends = append(t.backends, backend)
	t.spent = append(t.spent, make([]time.Duration, keptTurns))
}

// batch is how many rounds of a kind follow each other.
func (t *watchTurns) batch() int { return max(watchChunk/t.events, 1) }

// turn lets each have a batch of rounds. It allocates nothing.
func (t *watchTurns) turn() error {
	if err := t.timed(t.spent[0], t.floor); err != nil {
		return err
	}
	for i, round := range t.rounds {
		if err := t.timed(t.spent[i+1], round); err != nil {
			return err
		}
	}
	t.turns++
	return nil
}

func (t *watchTurns) timed(spent []time.Duration, round func() error) error {
	start := time.Now()
	for range t.batch() {
		if err := round(); err != nil {
			return err
		}
	}
	spent[t.turns%keptTurns] = time.Since(start)
	return nil
}

// reset discards the measurements.
func (t *watchTurns) reset() { t.turns = 0 }

// measured is how many events each watcher has had.
func (t *watchTurns) measured() int64 { return int64(t.turns) * int64(t.batch()*t.events) }

// floorTime returns the time of the floor, by the median of its batches.
func (t *watchTurns) floorTime() time.Duration { return t.typical(t.spent[0]) }

// net is the time that the i-th watcher took beyond the floor, by the medians.
func (t *watchTurns) net(i int) time.Duration { return t.typical(t.spent[i+1]) - t.floorTime() }

// typical returns the time of all turns at the median of a batch.
func (t *watchTurns) typical(spent []time.Duration) time.Duration {
	if t.turns == 0 {
		return 0
	}
	batches := slices.Sorted(slices.Values(spent[:min(t.turns, keptTurns)]))
	return batches[len(batches)/2] * time.Duration(t.turns)
}

// report replaces the times of a sample by those of the i-th watcher.
func (t *watchTurns) report(i int, s *measure.Sample) error {
	s.Ops, s.Elapsed, s.Floor = t.measured(), t.net(i), t.floorTime()
	s.CPU = nil                   // It is that of the floor as well.
	s.P50, s.P99, s.Max = 0, 0, 0 // They are of turns.
	if t.whole {
		s.Elapsed += s.Floor
	}
	if s.Elapsed <= 0 {
		return ErrFloor
	}
	return nil
}

// wakeLoop waits in one goroutine and is woken by another, each time that it asks for it.
type wakeLoop struct {
	watcher *watch.Watcher
	ask     chan struct{}
	ended   chan struct{}
}

func newWakeLoop(b watch.Mode) (*wakeLoop, error) {
	w, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return nil, err
	}
	l := &wakeLoop{watcher: w, ask: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(l.ended)
		for range l.ask {
			w.Wake()
		}
	}()
	return l, nil
}

// round asks for a wake and waits for it.
func (l *wakeLoop) round() error {
	l.ask <- struct{}{}
	_, err := l.watcher.Poll(-1, func(watch.Event) {})
	return err
}

func (l *wakeLoop) close() error {
	close(l.ask)
	<-l.ended
	return l.watcher.Close()
}
