// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Burner is a RandRead beside goroutines that compute and never wait.
type Burner struct {
	RandRead
	// Burners is the number of goroutines that compute.
	Burners int `json:"burners"`
}

// burnSteps makes a unit of computation about 25 µs long on a processor of 2020: long enough that
// counting it costs nothing, far shorter than a time slice.
const burnSteps = 20000

// burner returns an operation that performs one unit of computation.
func burner(seed uint64) measure.Op {
	state := seed
	return func() (int, error) {
		var sum uint64
		for range burnSteps {
			sum ^= splitmix(&state)
		}
		if sum == 0 && state == seed { // Not in a lifetime; it keeps the sum from being left out.
			return 0, errors.New("the sequence has ended")
		}
		return 0, nil
	}
}

// burner measures reads and units of computation. The processor's time is that of both, so it is
// not told: it is no cost of a read.
func (j Job) burner(ctx context.Context, e engine.Engine) (s measure.Sample, err error) {
	if j.Burner.Burners < 1 {
		return measure.Sample{}, fmt.Errorf("%d computing goroutines", j.Burner.Burners)
	}
	newOp, closeFile, err := j.Burner.Open(e)
	if err != nil {
		return measure.Sample{}, err
	}
	defer func() { err = errors.Join(err, closeFile()) }()
	plan := measure.Plan{Goroutines: j.Goroutines, Warm: j.Warm, Measure: j.Measure}
	for b := range j.Burner.Burners {
		plan.Beside = append(plan.Beside, burner(j.Burner.Seed+uint64(b)))
	}
	s, err = measure.Run(ctx, plan, newOp)
	s.CPU = nil
	return s, err
}
