// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const benchRingLong = `ring measures the cost of a ring without that of its operations: batches of no-ops are submitted, and their
completions reaped and checked. Package uring is compared with liburing, the library in C.

The same loop runs in Go and in C, on a ring of 256 entries with the same flags. Each entry has different
user data, and the result and user data of every completion are compared. With --ring
default the batch is submitted without waiting; with --ring defer the ring has a single issuer and
deferred task work, and submitting and waiting for the batch is one call on a locked thread. By
default both are measured, with 1, 16 and 128 no-ops per batch: about 20 seconds.

The program in C is compiled when the suite runs, which takes a C compiler and liburing (Debian:
apt-get install gcc libc6-dev liburing-dev). Without them ringside is measured alone.

An operation is one no-op. The clock is read once in about 1024 of them, so there are no
percentiles. The column after the rate has ringside's rate divided by that of liburing, pair by pair.`

const benchRingExample = `  ringside bench ring
  ringside bench ring --json ring-nop.json
  ringside bench ring --ring default --batch 1,2,4,8 --pairs 10`

// newBenchRingCmd returns "ringside bench ring".
func newBenchRingCmd() *cobra.Command {
	b := &ringBench{}
	return newSuiteCmd("ring", "Measure a ring with no-ops against liburing", benchRingLong, benchRingExample, suite.RingWords(), b, func(f *pflag.FlagSet) {
		f.StringSliceVar(&b.Rings, "ring", nil, "setups of the ring: default, defer")
		f.IntSliceVar(&b.Batches, "batch", nil, "numbers of no-ops per submission, such as 1,16,128")
	})
}

// ringBench is the suite "ring".
type ringBench struct{ suite.RingOptions }

func (b *ringBench) configure(flags *benchFlags) error {
	b.Timing, b.Seed = flags.Timing, flags.seed
	return b.Validate()
}

func (b *ringBench) measure(ctx context.Context, tools benchTools) (*report.Run, error) {
	return suite.Ring(ctx, b.RingOptions, suite.RingEnv{
		Round:     tools.round,
		ProbeRing: workload.ProbeRing,
		BuildPeer: buildLiburing,
		Progress:  tools.bar,
	})
}

func buildLiburing(ctx context.Context) (suite.Peer, error) {
	p, err := liburing.Build(ctx)
	if err != nil {
		return nil, err
	}
	return p, nil
}
