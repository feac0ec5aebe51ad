// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const benchFileLong = `file measures random reads of a real file: os.File beside ringside, with the page cache hot and
with O_DIRECT.

Rounds of the engines are interleaved (os, ringside, os, ringside, ...), each in a process of its
own. The table shows medians; the last column is ringside's rate divided by that of os, pair by
pair, with the smallest and the largest pair in brackets. Latencies count from the end of a
goroutine's previous read, so waiting for a processor is part of them.

By default 128 goroutines read blocks of 4, 8, 16, 64, 256 KiB and 1 MiB and one goroutine reads
blocks of 4 and 64 KiB, hot and direct: under 90 seconds. --full adds the other blocks for one
goroutine. --block, --goroutines and --cache replace an axis of the grid; --goroutines alone
brings all six blocks with it.

A file of 1 GiB is created in --dir (default: $TMPDIR, else /var/tmp) and removed at the end; its
content is verified while it is read. With --path an existing file or block device is only read.`

const benchFileExample = `  ringside bench file
  ringside bench file --dir /mnt/nvme --full --json nvme.json
  ringside bench file --path /dev/nvme0n1 --cache direct --goroutines 32,128
  ringside bench file --block 4K --pairs 10 --benchfmt new.txt && benchstat -col /engine new.txt`

// newBenchFileCmd returns "ringside bench file".
func newBenchFileCmd() *cobra.Command {
	flags := &benchFlags{}
	var opts suite.FileOptions
	cmd := &cobra.Command{
		Use:     "file",
		Short:   "Measure random reads of a file",
		Long:    benchFileLong,
		Example: benchFileExample,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runBench(cmd, &fileBench{opts}, flags) },
	}
	f := cmd.Flags()
	flags.register(f)
	f.StringVar(&opts.Path, "path", "", "read this existing `file`; it is never changed")
	f.StringVar(&opts.Dir, "dir", "", "create the test file in this `directory`")
	f.Var(sizeFlag{&opts.Size}, "size", "size of the created file (default 1G, hot only: 256M)")
	f.Var(sizesFlag{&opts.Blocks}, "block", "block sizes, such as 4K,64K,1M")
	f.IntSliceVar(&opts.Goroutines, "goroutines", nil, "numbers of goroutines, such as 1,32,128")
	f.StringSliceVar(&opts.Caches, "cache", nil, "states of the page cache: hot, direct")
	f.BoolVar(&opts.Full, "full", false, "measure the whole grid")
	f.BoolVar(&opts.Fio, "fio", false, "add the program fio (io_uring) as an engine where O_DIRECT is used")
	return cmd
}

// fileBench is the suite "file".
type fileBench struct{ opts suite.FileOptions }

func (b *fileBench) configure(flags *benchFlags) error {
	b.opts.Pairs, b.opts.Duration, b.opts.Seed = flags.pairs, flags.duration, flags.seed
	return b.opts.Validate()
}

func (*fileBench) layout() report.Layout { return report.FileLayout }

func (b *fileBench) measure(ctx context.Context, tools benchTools) (*report.Run, error) {
	return suite.File(ctx, b.opts, suite.Env{
		Round:           tools.round,
		ProbeDirect:     func(path string) error { return workload.ProbeDirect(engine.OS{}, path) },
		FindFio:         fio.Find,
		Fio:             func(ctx context.Context, p string, r fio.RandRead) (measure.Sample, error) { return r.Run(ctx, p) },
		AvailableMemory: hostinfo.AvailableMemory,
		Progress:        tools.bar,
	})
}
