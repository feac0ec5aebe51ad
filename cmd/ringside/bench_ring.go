// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchRingLong = `ring compares package uring with liburing, the library in C. The same loop runs in Go and in C, on a ring of
256 entries with the same flags. --workload selects from

  nop   batches of no-ops are submitted, and their completions reaped and checked: the cost of a ring without
        that of its operations. Each entry has different user data, and the result and user data of every
        completion are compared (default)
  read  random reads of 4 KiB of a file of 256 MiB, from the page cache and with O_DIRECT. As many as --depth
        says are in flight; one that completes is verified and replaced

With --ring default a batch of no-ops is submitted without waiting; with --ring defer the ring has a single
issuer and deferred task work, and submitting and waiting for the batch is one call on a locked thread. Reads
are submitted and waited for in one call on both. By default both rings are measured, with 1, 16 and
128 no-ops per batch, and with 1, 8, 32 and 128 reads in flight: about 20 seconds for no-ops, and more than a
minute for reads.

The program in C is compiled when the suite runs, which takes a C compiler and liburing (Debian:
apt-get install gcc libc6-dev liburing-dev). Without them ringside is measured alone.

An operation is one no-op or read. The clock is read once in about 1024 of them, so there are no
percentiles.`

const benchRingExample = `  ringside bench ring
  ringside bench ring --json ring-nop.json
  ringside bench ring --ring default --batch 1,2,4,8 --pairs 10
  ringside bench ring --workload read --cache direct --dir /mnt/nvme`

// newBenchRingCmd returns "ringside bench ring".
func newBenchRingCmd() *cobra.Command {
	b := &ringBench{}
	return newSuiteCmd("ring", "Measure a ring against liburing", benchRingLong, benchRingExample, suite.RingWords(), b, func(f *pflag.FlagSet) {
		f.StringSliceVar(&b.Workloads, "workload", nil, "what is measured: nop, read (default: nop)")
		f.StringVar(&b.Dir, "dir", "", "create the file to read in this `directory`")
		f.StringSliceVar(&b.Rings, "ring", nil, "setups of the ring: default, defer")
		f.IntSliceVar(&b.Batches, "batch", nil, "numbers of no-ops per submission, such as 1,16,128")
		f.IntSliceVar(&b.Depths, "depth", nil, "numbers of reads in flight, such as 1,32")
		f.StringSliceVar(&b.Caches, "cache", nil, "states of the page cache: hot, direct")
	})
}

// ringBench is the suite "ring".
type ringBench struct{ suite.RingOptions }

func (b *ringBench) configure(flags *benchFlags) error {
	b.Timing, b.Seed = flags.Timing, flags.seed
	return b.Validate()
}

func (b *ringBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	return suite.Ring(ctx, b.RingOptions, env)
}
