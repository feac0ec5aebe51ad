// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/spf13/cobra"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/sqlitebench"
	"github.com/ringside-io/ringside/cmd/internal/suite"
)

const benchLong = `bench measures what io_uring gains for Go programs on this machine: it compares ringside with the
standard library and others, and answers for each kind of work whether to use it. Without the name of a suite it runs
four suites briefly, in three minutes:

  file    random reads and durable appends: os.File against ufile
  net     echo, TLS and HTTP servers: package net against unet and unet/event
  watch   readiness events: epoll against io_uring, both by package watch
  sqlite  commits to one and to many databases, cold scans: the default VFS against sqlitevfs

It ends with at most fifteen lines: what gains, what loses, what makes no difference, and what this run could not
decide, with the command that does. 1.25x (1.22–1.28) means 1.25 times the rate of what it replaces, and that the true
ratio lies between 1.22 and 1.28 in 95 of 100 runs. CPU is the processor time for each operation, and p99 the 99th
percentile of latency, both beside what it replaces. Of all claims at most one in twenty is expected to be false.

An engine is an implementation to compare, such as os.File. A cell is one combination of parameters, such as 128
goroutines and blocks of 4 KiB. Both engines of a cell live at the same time, each in a process of its own, and take
turns of some milliseconds in random order (--turn), so that slow changes of the machine's speed cancel. They are
started anew several times. Cells that read a cold cache with SQLite, and its speed tests, cannot take turns: they are
measured in rounds, each in a new process. The cells share the time of the run (--time): a slow machine measures less,
not longer. A cell that is decided beyond doubt ends early, and leaves its time to the others. A cell that fails is
skipped with the reason; the exit code is then 1. With --pairs, the number of starts, or --duration, the measured time
after each, a run takes as long as these need.

--tables prints the values of all engines too. --full measures the published grids of all suites, which takes an hour.
--drawn 50 measures fifty cells with sizes, numbers of connections, journal modes and the like drawn at random, ten
seconds each: --seed repeats a draw. Each suite has further options.

Test files are created in --dir (default: $TMPDIR, else /var/tmp) and removed at the end, also after an
interrupt.`

// newBenchCmd returns "ringside bench", which briefly runs all suites.
func newBenchCmd() *cobra.Command {
	flags := &benchFlags{}
	all := &allBench{}
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Compare ringside with the standard library",
		Long:  benchLong,
		Example: "  ringside bench                 # all suites, briefly\n" +
			"  ringside bench --html report.html --json report.json\n" +
			"  ringside bench file            # one suite, its default grid\n" +
			"  ringside bench file --full     # one suite, the whole grid\n" +
			"  ringside bench net             # echo servers on TCP\n" +
			"  ringside bench ring            # ringside's ring against liburing's\n" +
			"  ringside bench watch           # events of descriptors, epoll against io_uring\n" +
			"  ringside bench sqlite          # SQLite, over ringside's VFS and over others",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runBench(cmd, all, flags) },
	}
	flags.register(cmd.Flags(), "3m, with --full 4s for two engines of a cell")
	cmd.Flags().StringVar(&all.dir, "dir", "", "create test files in this `directory`")
	cmd.Flags().BoolVar(&all.full, "full", false, "measure the published grids")
	cmd.Flags().IntVar(&all.drawn, "drawn", 0, "measure this `number` of cells, drawn at random by --seed")
	cmd.AddCommand(newBenchFileCmd(), newBenchNetCmd(), newBenchRingCmd(), newBenchSQLiteCmd(), newBenchWatchCmd())
	return cmd
}

// allBench runs one suite after another: files, sockets, watching, SQLite.
type allBench struct {
	dir   string
	full  bool
	drawn int
	parts []allPart
	time  time.Duration // of the run; 0 if it has no end
}

// Limit sets the time of the run.
func (a *allBench) Limit(d time.Duration) { a.time = d }

// allPart is one suite of the run, with its weight in the time of the run.
type allPart struct {
	title  string
	b      benchmark
	weight float64
}

// briefTime is the time of a brief run, with its processes' ends.
const briefTime = 3*time.Minute - 2*time.Second

// briefParts returns the suites of a brief run. They answer the questions of most programs in three
// minutes.
func (a *allBench) briefParts() []allPart {
	return []allPart{
		{"files", &fileBench{suite.FileOptions{Dir: a.dir, Brief: true, NoFio: true}}, 42},
		{"sockets", &netBench{suite.NetOptions{
			Brief: true, Workloads: []string{"echo", "tls", "http"}, Engines: []string{echo.NameStd, echo.NameConn, echo.NameEvent},
		}}, 62},
		{"watching", &watchBench{suite.WatchOptions{Sources: []string{"eventfd"}, Modes: []string{"edge"}, Active: []int{1, 100}}}, 9},
		{"SQLite", &sqliteBench{suite.SQLiteOptions{
			Dir: a.dir, Engines: []string{sqlitebench.Default, sqlitebench.Ringside, sqlitebench.Log}, Scale: 20,
		}}, 55},
	}
}

// fullParts returns the published grids.
func (a *allBench) fullParts() []allPart {
	return []allPart{
		{"files", &fileBench{suite.FileOptions{Dir: a.dir, Full: true}}, 12},
		{"sockets", &netBench{suite.NetOptions{Full: true}}, 20},
		{"watching", &watchBench{suite.WatchOptions{Workloads: []string{suite.EventsWork, suite.HTTPWork}}}, 3},
		{"SQLite", &sqliteBench{suite.SQLiteOptions{
			Dir: a.dir, Workloads: []string{suite.SpeedWork, suite.TenantsWork, suite.ColdWork}, Scale: 100,
		}}, 8},
		{"the ring", &ringBench{suite.RingOptions{Dir: a.dir, Workloads: []string{suite.NopWork, suite.ReadsWork}}}, 2},
	}
}

func (a *allBench) configure(flags *benchFlags) (err error) {
	whole := flags.Time == 0 && flags.Pairs == 0 && flags.Duration == 0
	switch {
	case a.full && a.drawn != 0:
		return errors.New("--full and --drawn: choose one of them")
	case a.drawn < 0 || a.drawn > maxDrawn:
		return fmt.Errorf("--drawn %d: must be between 1 and %d", a.drawn, maxDrawn)
	case a.full:
		a.parts = a.fullParts()
	case a.drawn > 0:
		d := drawn{rand.New(rand.NewPCG(flags.seed, 0)), a.dir}
		if a.parts, err = d.parts(a.drawn, flags); err != nil {
			return err
		}
		if whole {
			flags.Time = time.Duration(a.drawn) * drawnTime
		}
	default:
		a.parts = a.briefParts()
		if whole {
			flags.Time = briefTime
		}
	}
	a.time = flags.Time
	for _, p := range a.parts {
		if err := p.b.configure(flags); err != nil {
			return err
		}
	}
	return nil
}

// measure runs the suites. Each gets its part of the time that is left. If a suite cannot run on this
// machine or cells of it fail, measure continues. Any other error ends the run.
func (a *allBench) measure(ctx context.Context, env suite.Env) (*report.Run, error) {
	all, end, weights := &report.Run{}, time.Now().Add(a.time), 0.0
	for _, p := range a.parts {
		weights += p.weight
	}
	var failed error
	for i, p := range a.parts {
		var after time.Duration
		if a.time > 0 {
			left := time.Until(end)
			share := time.Duration(float64(left) * p.weight / weights)
			p.b.Limit(max(share, time.Millisecond))
			weights, after = weights-p.weight, left-share
		}
		env.Progress.Part(fmt.Sprintf("[%d/%d] %s: ", i+1, len(a.parts), p.title), after)
		run, err := p.b.measure(ctx, env)
		if run != nil {
			all.Add(run)
		}
		if err == nil || errors.Is(err, suite.ErrNothing) {
			continue
		}
		if err = fmt.Errorf("%s: %w", p.title, err); !errors.Is(err, suite.ErrFailed) {
			return all, err
		}
		failed = errors.Join(failed, err)
	}
	if len(all.Cells) == 0 && failed == nil {
		return all, suite.ErrNothing
	}
	return all, failed
}
