// SPDX-License-Identifier: MIT

package main

import (
	"context"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchFileLong = `file measures operations on files: os.File against ringside. --workload selects from

  randread   many goroutines read blocks at random offsets; with --full, --block or --goroutines and
             O_DIRECT also into registered memory of a ufile.Buffers (ringside-buffers)
  batch      one goroutine reads 16 or 128 blocks by one call: an errgroup against ufile.Batch
  burner     32 goroutines read while one computes, or one on each processor; the column
             "computed/s" is the rate of their computations
  open       each goroutine opens the file, reads one block or none, and closes it
  append     records of 128 bytes or 4 KiB, each durable before its append returns: a plain
             group commit in Go (os), a file behind a mutex (os-mutex), and appendlog.Log; the files
             have a length and a checksum for each record
  randwrite  many goroutines overwrite blocks at random offsets of a file that is created for it
  sync       buffered overwrites, each made durable by fdatasync before the goroutine's next one; with
             --full also with io_uring for every call (ringside-ring)
  pebble     the database pebble with 64 clients, by the mixes A to F of YCSB and by C with uniform
             keys: pebble on its own files (os) against pebble on pebblevfs. --full has it, in a
             build with -tags peers on Linux

There are three states of the page cache. hot: all blocks are cached. direct: O_DIRECT, which bypasses
it. cold (randread): the file is evicted before each window, no block is read twice, and read-ahead is
off; the column "device" is the share that came from the device (100 %: no block was cached or read
ahead). cold (pebble): the files of the database are evicted before the window.

Ratios are those to os. Latencies count from the end of a goroutine's previous read, so waiting for a
processor is part of them.

By default each workload is measured in a few cells, in about two and a half minutes. --full measures
1, 8, 32, 128 and 512 goroutines with blocks of 4, 8, 16, 64, 256 KiB and 1 MiB, hot and direct, cold
reads of 4 and 64 KiB with 1, 32, 64 and 128 goroutines, and the fast device: about ten minutes, and four
more with pebble. --block, --goroutines and --cache replace an axis of the grid; without --workload they
measure randread alone.

fio: where the program is installed it reads the same file with O_DIRECT through io_uring from one
job, with as many reads in flight as there are goroutines. It is a reference in C that does not check the
data. --no-fio leaves it out. --fio-also fio-fixed adds fio with a registered file and registered buffers,
--fio-also fio-batched adds fio that submits and waits in batches.

The fast device (--fast) is XFS on a loop device in memory, made for the run: its reads cost little
more than processor time, so it shows the cost of the software. It needs root and mkfs.xfs (Debian:
apt-get install xfsprogs), takes up to a quarter of the available memory, and is removed when the
program ends, also after a kill. --fast=only measures nothing else, --fast=none leaves it out.

A file of 1 GiB is created in --dir (default: $TMPDIR, else /var/tmp) and removed at the end, as are the
files of workloads that write. All data is verified when it is read. Writes are read back: every
acknowledged record, and each goroutine's last blocks. With --path an existing
file or block device is only read, and append, randwrite, sync and pebble are skipped.`

const benchFileExample = `  ringside bench file
  ringside bench file --dir /mnt/nvme --full --json nvme.json
  ringside bench file --workload append --goroutines 1,64,512
  ringside bench file --path /dev/nvme0n1 --cache direct --goroutines 32,128
  ringside bench file --cache cold --goroutines 32,128
  sudo ringside bench file --fast=only --fio-also fio-fixed
  ringside bench file --block 4K --pairs 10 --benchfmt new.txt && benchstat -col /engine new.txt`

// newBenchFileCmd returns "ringside bench file".
func newBenchFileCmd() *cobra.Command {
	b := &fileBench{}
	return newSuiteCmd("file", "Measure reads, writes and durable appends of files", benchFileLong, benchFileExample, suite.FileWords(), b, func(f *pflag.FlagSet) {
		f.StringVar(&b.Path, "path", "", "read this existing `file`; it is never changed")
		f.StringVar(&b.Dir, "dir", "", "create the test file in this `directory`")
		f.Var(sizeFlag{&b.Size}, "size", "size of the created file (default 1G, hot only: 256M)")
		f.Var(sizesFlag{&b.Blocks}, "block", "block sizes, such as 4K,64K,1M")
		f.IntSliceVar(&b.Goroutines, "goroutines", nil, "numbers of goroutines, such as 1,32,128")
		f.Var(sizesFlag{&b.Records}, "record", "sizes of appended records, such as 128,4K")
		f.StringSliceVar(&b.Caches, "cache", nil, "states of the page cache: hot, direct, cold")
		f.StringSliceVar(&b.Workloads, "workload", nil, "what is measured: randread, batch, burner, open, append, randwrite, sync, pebble (default: all but pebble)")
		f.BoolVar(&b.Full, "full", false, "measure the whole grid")
		fastFlag := f.VarPF(fastValue{&b.Fast}, "fast", "", "measure a storage in memory too: add (if no word is given), only, none (default: with --full)")
		fastFlag.NoOptDefVal = string(suite.FastAdd)
		f.BoolVar(&b.NoFio, "no-fio", false, "leave out the program fio")
		f.StringSliceVar(&b.FioAlso, "fio-also", nil, "further engines of fio: fio-fixed, fio-batched")
	})
}

// fileBench is the suite "file".
type fileBench struct{ suite.FileOptions }

func (b *fileBench) configure(flags *benchFlags) error {
	b.Timing, b.Seed = flags.Timing, flags.seed
	return b.Validate()
}

func (b *fileBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	return suite.File(ctx, b.FileOptions, env)
}

// fastValue is the flag that selects the storage in memory.
type fastValue struct{ fast *suite.Fast }

func (v fastValue) String() string {
	if v.fast == nil {
		return ""
	}
	return string(*v.fast)
}

func (fastValue) Type() string { return "word" }

func (v fastValue) Set(text string) error {
	switch text {
	case "true":
		text = string(suite.FastAdd)
	case "false":
		text = string(suite.FastNone)
	}
	*v.fast = suite.Fast(text)
	return nil
}
