// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// RingOptions say what the suite "ring" measures. The zero value is the default run.
type RingOptions struct {
	// Rings and Batches replace an axis of the grid.
	Rings   []string
	Batches []int
	// Pairs is the number of interleaved rounds of each engine (0: 5), Duration the length of
	// a measured window (0: 200 ms).
	Pairs    int
	Duration time.Duration
	// Seed is the user data of the first no-op.
	Seed uint64
}

// ringCell is one point of the grid.
type ringCell struct {
	ring  string
	batch int
}

// Validate returns an error that names the first option that makes no sense.
func (o RingOptions) Validate() error {
	if err := RingWords().check("ring", o.Rings); err != nil {
		return err
	}
	for _, b := range o.Batches {
		if b < 1 || b > workload.NopEntries {
			return fmt.Errorf("--batch %d: must be between 1 and %d", b, workload.NopEntries)
		}
	}
	if o.Pairs < 0 || o.Duration < 0 {
		return fmt.Errorf("--pairs and --duration must be positive")
	}
	return nil
}

// withDefaults fills in what was left open.
func (o RingOptions) withDefaults() RingOptions {
	if o.Pairs == 0 {
		o.Pairs = 5
	}
	if o.Duration == 0 {
		o.Duration = 200 * time.Millisecond
	}
	if len(o.Rings) == 0 {
		o.Rings = []string{workload.RingDefault, workload.RingDefer}
	}
	if len(o.Batches) == 0 {
		o.Batches = []int{1, 16, 128}
	}
	return o
}

// cells returns the grid.
func (o RingOptions) cells() []ringCell {
	var out []ringCell
	for _, ring := range o.Rings {
		for _, batch := range o.Batches {
			out = append(out, ringCell{ring: ring, batch: batch})
		}
	}
	return out
}
