// SPDX-License-Identifier: MIT

package workload

import (
	"errors"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// ErrFloor is returned when a window was too short, or too disturbed, to tell watching from what it
// is compared to.
var ErrFloor = errors.New("watching took no longer than the writes and reads alone: measure for longer with --duration")

const (
	// watchChunk is about how many events pass between two readings of the clock.
	watchChunk = 1000
	// keptTurns is how many turns are remembered, which is some seconds of them.
	keptTurns = 1 << 14
)

// watchTurns runs the rounds of one watcher or more and their floor, which is what all rounds have
// in common, in small alternating batches: a change of the machine's pace hits all of them. What
// counts is the median of the batches, as a disturbance within one, of a floor that is most of the
// time, would be taken for the time of watching.
type watchTurns struct {
	floor  func() error
	rounds []func() error
	// backends say what the watchers of the rounds use.
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

// reset forgets what was measured.
func (t *watchTurns) reset() { t.turns = 0 }

// measured is how many events each watcher has had.
func (t *watchTurns) measured() int64 { return int64(t.turns) * int64(t.batch()*t.events) }

// floorTime is what the floor took, by the median of its batches.
func (t *watchTurns) floorTime() time.Duration { return t.typical(t.spent[0]) }

// net is the time that the i-th watcher took beyond the floor, by the medians.
func (t *watchTurns) net(i int) time.Duration { return t.typical(t.spent[i+1]) - t.floorTime() }

// typical is what all turns would have taken at the median of a batch.
func (t *watchTurns) typical(spent []time.Duration) time.Duration {
	if t.turns == 0 {
		return 0
	}
	batches := slices.Sorted(slices.Values(spent[:min(t.turns, keptTurns)]))
	return batches[len(batches)/2] * time.Duration(t.turns)
}

// report replaces what a sample says about time by that of the i-th watcher.
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
