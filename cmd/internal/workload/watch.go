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
	// SourceEventFD is a set of eventfds. Each round signals, awaits and reads all of them.
	SourceEventFD = "eventfd"
	// SourcePair is a set of socket pairs, each with one message in transit. Each end sends back
	// what it receives.
	SourcePair = "socketpair"
	// SourceWake is a goroutine that wakes the waiting one.
	SourceWake = "wake"
)

// maxWatched limits the number of descriptors of each kind.
const maxWatched = 1 << 20

// Watch measures what package watch takes for an event. Rounds that get events alternate with a
// floor: the same writes and reads on unwatched descriptors. For eventfds the result excludes the
// floor. For socket pairs it includes the floor, because their writes and reads allocate memory and
// vary between processes by as much as watching takes.
type Watch struct {
	Source string `json:"source"`
	// Mode is the trigger of the descriptors. Active is the number of descriptors, or pairs, with
	// an event in each round. Idle is the number of eventfds without events. SourceWake uses none
	// of the three.
	Mode   watch.Trigger `json:"mode"`
	Active int           `json:"active"`
	Idle   int           `json:"idle"`
	// Among spreads the idle descriptors evenly between the active ones, by number and in memory.
	Among bool `json:"among,omitempty"`
}

// Descriptors returns the number of descriptors that the workload opens for one watcher, without
// the watcher's own.
func (w Watch) Descriptors() int { return w.descriptors(1) }

// descriptors counts the watched descriptors of each watcher, the unwatched ones, and the idle
// ones.
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

// watchMode returns the mode that an engine's name means.
func watchMode(engine string) (watch.Mode, error) {
	b, err := features.ParseMode(engine)
	if err == nil && b != watch.ModeEpoll && b != watch.ModeRing {
		err = fmt.Errorf("engine %q: must be %v or %v", engine, watch.ModeEpoll, watch.ModeRing)
	}
	return b, err
}

// ProbeWatch returns an error if this process cannot watch with the engine, "epoll" or "io_uring".
func ProbeWatch(engine string) error {
	b, err := watchMode(engine)
	if err != nil {
		return err
	}
	w, err := watch.New(watch.Options{Mode: b})
	if err != nil {
		return err
	}
	return w.Close()
}

// Run runs the round in a goroutine locked to its thread, because a watcher belongs to a thread.
func (w *Watch) Run(ctx context.Context, engine string, plan measure.Plan) (measure.Sample, error) {
	if err := w.check(); err != nil {
		return measure.Sample{}, err
	}
	b, err := watchMode(engine)
	if err != nil {
		return measure.Sample{}, err
	}
	plan.Goroutines = 1
	if w.Source == SourceWake {
		return wakes(ctx, b, plan)
	}
	return w.events(ctx, b, plan)
}

// events measures rounds and their floor alternately.
func (w *Watch) events(ctx context.Context, b watch.Mode, plan measure.Plan) (s measure.Sample, err error) {
	var t *watchTurns
	closeAll := func() error { return nil }
	defer func() { err = errors.Join(err, closeAll()) }()
	op := func() (int, error) {
		if t == nil {
			runtime.LockOSThread()
			var err error
			if t, closeAll, err = w.open(b); err != nil {
				return 0, err
			}
		}
		return 0, t.turn()
	}
	plan.Between = func() error {
		if t != nil { // The warm-up may have ended before the first turn.
			t.reset()
		}
		return nil
	}
	plan.Adjust = func(s *measure.Sample) error {
		s.Backend, s.Reason = t.backends[0]()
		err := t.report(0, s)
		if plan.Turns != nil && errors.Is(err, ErrFloor) { // One turn that was disturbed is an outlier, not a failure.
			s.Elapsed, err = max(s.Floor/100, 1), nil
		}
		return err
	}
	return measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
}

// wakes measures wakes one by one.
func wakes(ctx context.Context, b watch.Mode, plan measure.Plan) (s measure.Sample, err error) {
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
	plan.Adjust = func(s *measure.Sample) error {
		s.Backend, s.Reason = l.watcher.Backend()
		return nil
	}
	return measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
}

// ErrFloor is returned when a window was too short, or too disturbed, to measure watching.
var ErrFloor = errors.New("watching took no longer than the writes and reads alone: measure for longer with --duration")

const (
	// watchChunk is the approximate number of events between two readings of the clock.
	watchChunk = 1000
	// keptTurns is the number of turns whose times are kept: a few seconds.
	keptTurns = 1 << 14
)

// watchTurns runs the rounds of one or more watchers and their floor in small alternating batches,
// so that a change of the machine's speed affects all of them. The floor is the work that all
// rounds have in common, and most of the time. The result is the median of the batches: with a
// mean, a disturbance of the floor would be taken for time of watching.
type watchTurns struct {
	floor  func() error
	rounds []func() error
	// backends has a function for each round, which returns the backend of its watcher.
	backends []func() (name, reason string)
	// events is the number of events of a round.
	events int
	// whole includes the floor in the reported time.
	whole bool
	// turns is the number of calls of turn. spent has the times of the last batches: spent[0] of
	// the floor, then those of each round.
	turns int
	spent [][]time.Duration
}

func newWatchTurns(events int, floor func() error) *watchTurns {
	return &watchTurns{events: events, floor: floor, spent: [][]time.Duration{make([]time.Duration, keptTurns)}}
}

// add adds a watcher's round to the following turns.
func (t *watchTurns) add(round func() error, backend func() (name, reason string)) {
	t.rounds = append(t.rounds, round)
	t.backends = append(t.backends, backend)
	t.spent = append(t.spent, make([]time.Duration, keptTurns))
}

// batch returns the number of consecutive rounds of one watcher.
func (t *watchTurns) batch() int { return max(watchChunk/t.events, 1) }

// turn runs a batch of the floor and of each round. It does not allocate.
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

// measured returns the number of events that each watcher has received.
func (t *watchTurns) measured() int64 { return int64(t.turns) * int64(t.batch()*t.events) }

// floorTime returns the time of the floor, from the median of its batches.
func (t *watchTurns) floorTime() time.Duration { return t.typical(t.spent[0]) }

// net returns the time of the i-th watcher without the floor, from the medians.
func (t *watchTurns) net(i int) time.Duration { return t.typical(t.spent[i+1]) - t.floorTime() }

// typical returns the time of all turns if each batch had taken the median.
func (t *watchTurns) typical(spent []time.Duration) time.Duration {
	if t.turns == 0 {
		return 0
	}
	batches := slices.Sorted(slices.Values(spent[:min(t.turns, keptTurns)]))
	return batches[len(batches)/2] * time.Duration(t.turns)
}

// report replaces the times of a sample with those of the i-th watcher.
func (t *watchTurns) report(i int, s *measure.Sample) error {
	s.Ops, s.Elapsed, s.Floor = t.measured(), t.net(i), t.floorTime()
	s.CPU = nil                   // It includes the floor.
	s.P50, s.P99, s.Max = 0, 0, 0 // They are those of turns.
	if t.whole {
		s.Elapsed += s.Floor
	}
	if s.Elapsed <= 0 {
		return ErrFloor
	}
	return nil
}

// wakeLoop waits in one goroutine, and another goroutine wakes it on request.
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

// round requests a wake-up and waits for it.
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
