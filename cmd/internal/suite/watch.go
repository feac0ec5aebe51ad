// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	watchSuite = "watch"
	eventsWork = "events"
)

// WatchEnv is how the suite "watch" reaches the world. All functions must be set.
type WatchEnv struct {
	// Round runs one job, in a process of its own.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// Probe tells whether an engine can be used here.
	Probe func(engine string) error
	// Descriptors is how many a process may have; 0 means that nobody knows.
	Descriptors func() int
	// Progress is told how far the run is.
	Progress Progress
}

// Watch runs the suite "watch". It always returns a report, which is complete only if the error is
// nil.
func Watch(ctx context.Context, opts WatchOptions, env WatchEnv) (*report.Run, error) {
	w := &watchRun{opts: opts.withDefaults(), env: env, run: &report.Run{}}
	w.run.Host = hostinfo.Collect("")
	w.run.Host.Pairs = w.opts.Pairs
	w.run.Host.DurationMs = float64(w.opts.Duration) / float64(time.Millisecond)
	w.probe()
	cells := w.possible()
	if len(w.engines) == 0 || len(cells) == 0 {
		return w.run, ErrNothing
	}
	return w.run, w.measure(ctx, cells)
}

// watchRun is the state of one run of the suite.
type watchRun struct {
	opts    WatchOptions
	env     WatchEnv
	run     *report.Run
	engines []string
}

func (w *watchRun) skip(s report.Skip) {
	s.Suite, s.Workload = watchSuite, eventsWork
	w.run.Skipped = append(w.run.Skipped, s)
}

// probe finds the engines that can be used.
func (w *watchRun) probe() {
	for _, name := range w.opts.Engines {
		if err := w.env.Probe(name); err != nil {
			w.skip(report.Skip{Engine: name, Reason: err.Error()})
			continue
		}
		w.engines = append(w.engines, name)
	}
}

// possible returns the cells for which there are descriptors, and notes the others as skipped.
func (w *watchRun) possible() []workload.Watch {
	const others = 64 // descriptors of a process beside those of the workload
	limit := w.env.Descriptors()
	return slices.DeleteFunc(w.opts.cells(), func(c workload.Watch) bool {
		need := c.Descriptors() + others
		if limit <= 0 || need <= limit {
			return false
		}
		w.skip(report.Skip{
			Params: watchParams(c),
			Reason: fmt.Sprintf("needs %d descriptors, and a process may have only %d (ulimit -n)", need, limit),
		})
		return true
	})
}

// measure runs all cells.
func (w *watchRun) measure(ctx context.Context, cells []workload.Watch) error {
	w.env.Progress.Start(int64(w.opts.Pairs*len(w.engines)*len(cells)), "measuring")
	for _, c := range cells {
		if err := w.measureCell(ctx, c); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("stopped after %d of %d cells: %w", len(w.run.Cells), len(cells), ctx.Err())
			}
			return fmt.Errorf("%s, %s: %w", eventsWork, watchPoint(c), err)
		}
	}
	return nil
}

// measureCell runs the engines in turn and adds the cell to the report.
func (w *watchRun) measureCell(ctx context.Context, c workload.Watch) error {
	samples, err := measure.Interleave(ctx, w.opts.Pairs, w.engines,
		func(ctx context.Context, name string, _ int) (measure.Sample, error) {
			w.env.Progress.Note("%s, %s", eventsWork, watchPoint(c))
			s, err := w.env.Round(ctx, workload.Job{
				Suite: watchSuite, Workload: eventsWork, Engine: name, Goroutines: 1,
				Warm: warmFor(w.opts.Duration), Measure: w.opts.Duration, Watch: &c,
			})
			if err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			w.env.Progress.Add(1)
			return s, nil
		})
	if err != nil {
		return err
	}
	out := report.Cell{Suite: watchSuite, Workload: eventsWork, Params: watchParams(c)}
	for i, name := range w.engines {
		out.Series = append(out.Series, newSeries(name, samples[i]))
	}
	w.run.Cells = append(w.run.Cells, out)
	return nil
}

// watchPoint names a cell.
func watchPoint(c workload.Watch) string {
	if c.Source == workload.SourceWake {
		return c.Source
	}
	return fmt.Sprintf("%s, %v, %d active, %d idle", c.Source, c.Mode, c.Active, c.Idle)
}
