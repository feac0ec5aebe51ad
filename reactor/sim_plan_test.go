// SPDX-License-Identifier: MIT

package reactor

import (
	"fmt"
	"log/slog"
	"math/rand/v2"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
)

// plan holds the choices that a seed makes before anything runs.
type plan struct {
	seed    uint64
	opts    Options
	cq      int
	faults  kernelsim.Faults
	busy    bool // EBUSY while completions have overflowed
	bugs    kernelsim.Bugs
	workers int
	steps   int // for each worker
	ending  ending
}

func (p plan) String() string {
	o := p.opts
	return fmt.Sprintf("seed %d: %d rings, %d entries, %d in flight, CQ %d, faults %+v, busy %v, bugs %+v, %d workers, %d steps, ending %d",
		p.seed, o.Loops, o.Entries, o.InFlight, p.cq, p.faults, p.busy, p.bugs, p.workers, p.steps, p.ending)
}

// ending is how the reactor ends.
type ending int

const (
	whenDone    ending = iota // Close after the last operation
	closeMidway               // Close while the workers run
	closeTwice                // two goroutines call Close
	endings
)

func newPlan(seed uint64) plan {
	rng := rand.New(rand.NewPCG(seed, 1))
	p := plan{
		seed: seed,
		opts: Options{
			Loops:    pick(rng, 1, 1, 2, 3),
			Entries:  pick(rng, 1, 2, 3, 4, 8, 64),
			InFlight: pick(rng, 1, 2, 3, 8, 64, 4096),
			Logger:   slog.New(slog.DiscardHandler),
		},
		cq:      pick(rng, 1, 2, 8, 4096),
		busy:    rng.IntN(4) == 0,
		workers: 1 + rng.IntN(10),
		steps:   1 + rng.IntN(25),
		ending:  ending(rng.IntN(int(endings))),
	}
	if p.ending == closeMidway && rng.IntN(2) == 0 {
		p.ending = whenDone // the most frequent
	}
	p.faults = newFaults(rng)
	return p
}

// newFaults picks some faults. Most seeds have few, so that each fault occurs alone as well
// as with others.
func newFaults(rng *rand.Rand) kernelsim.Faults {
	company := rng.Float64()
	some := func(most float64) float64 {
		if rng.Float64() > company {
			return 0
		}
		return most * pick(rng, 0.05, 0.2, 1)
	}
	f := kernelsim.Faults{
		Delay: some(1), Late: some(1), Short: some(0.5),
		Interrupted: some(0.2), Again: some(0.2), Broken: some(0.2), NoSpace: some(0.2),
		Exit:       some(0.6),
		LostCancel: some(0.7), Disturbed: some(0.5),
		Refuse: some(0.5), Partial: some(1),
		Return: some(0.5), LateWake: some(1), Spurious: some(0.3),
		Stale: some(0.5),
	}
	switch rng.IntN(12) {
	case 0:
		f.Fatal = 0.02
	case 1:
		f.Unparked = 0.02
	}
	return f
}

func pick[T any](rng *rand.Rand, of ...T) T { return of[rng.IntN(len(of))] }
