// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	watchSuite = "watch"
	// EventsWork measures events of descriptors. HTTPWork runs the web server of the example
	// http-watch.
	EventsWork = "events"
	HTTPWork   = "http"
)

// Watch runs the suite "watch". It always returns a report, which is complete only if the error is
// nil.
func Watch(ctx context.Context, opts WatchOptions, env Env) (*report.Run, error) {
	opts = opts.withDefaults()
	w := &watchRun{runner: newRunner(watchSuite, opts.Timing, env.Progress, ""), opts: opts, env: env}
	if !slices.Contains(opts.Workloads, EventsWork) {
		w.run.Host.DurationMs = 0 // A round of requests has no window.
	}
	w.probe()
	cells, err := w.cells(ctx)
	if err != nil {
		return w.run, err
	}
	if len(w.engines) == 0 || len(cells) == 0 {
		return w.run, ErrNothing
	}
	return w.run, w.measure(ctx, w.points(cells))
}

// watchRun is the state of one run of the suite.
type watchRun struct {
	runner
	opts    WatchOptions
	env     Env
	engines []string
}

// watchCell is one point of the grid, with the job of each engine except for its name.
type watchCell struct {
	params report.Params
	job    workload.Job
}

func (w *watchRun) skip(work string, s report.Skip) {
	s.Workload = work
	w.runner.skip(s)
}

// probe finds the engines that can be used.
func (w *watchRun) probe() {
	for _, name := range w.opts.Engines {
		if err := w.env.probeWatch(name); err != nil {
			for _, work := range w.opts.Workloads {
				w.skip(work, report.Skip{Engine: name, Reason: err.Error()})
			}
			continue
		}
		w.engines = append(w.engines, name)
	}
}

// cells returns the cells of all workloads.
func (w *watchRun) cells(ctx context.Context) (out []watchCell, err error) {
	for _, work := range w.opts.Workloads {
		if work == EventsWork {
			out = append(out, w.eventCells()...)
			continue
		}
		cells, err := w.httpCells(ctx)
		if err != nil {
			return nil, err
		}
		out = append(out, cells...)
	}
	return out, nil
}

// eventCells returns the cells for which there are enough descriptors, and notes the others as
// skipped.
func (w *watchRun) eventCells() (out []watchCell) {
	const others = 64 // descriptors of a process beside those of the workload
	limit := w.env.descriptors()
	for _, c := range w.opts.cells() {
		need := c.Descriptors() + others
		if limit <= 0 || need <= limit {
			out = append(out, watchCell{watchParams(c), workload.Job{
				Workload: EventsWork, Goroutines: 1, Warm: warmFor(w.opts.Duration), Measure: w.opts.Duration, Work: &c,
			}})
			continue
		}
		w.skip(EventsWork, report.Skip{
			Params: watchParams(c),
			Reason: fmt.Sprintf("needs %d descriptors, and a process may have only %d (ulimit -n)", need, limit),
		})
	}
	return out
}

// points returns the cells with the functions that run them.
func (w *watchRun) points(cells []watchCell) []point {
	var out []point
	for _, c := range cells {
		job := func(name string) workload.Job {
			job := c.job
			job.Suite, job.Engine = watchSuite, name
			return job
		}
		out = append(out, point{
			workload: c.job.Workload, params: c.params, engines: w.engines,
			round: func(ctx context.Context, name string, _ int) (report.Sample, error) {
				s, err := w.env.Workers.Round(ctx, job(name))
				return sampleOf(s), err
			},
			open: w.env.Workers.opener(func(name string, _ int) (workload.Job, error) { return job(name), nil }),
		})
	}
	return out
}

// httpCells returns two cells: one with a new connection for each request, and one that reuses
// connections. Without ab there are none.
func (w *watchRun) httpCells(ctx context.Context) ([]watchCell, error) {
	path, version, err := w.env.findClient(ctx, generator.NameAB)
	if err != nil {
		w.skip(HTTPWork, report.Skip{Reason: err.Error()})
		return nil, ctx.Err()
	}
	w.peer(version)
	var out []watchCell
	for _, client := range []string{generator.NameAB, generator.NameABKeep} {
		keep := client == generator.NameABKeep
		h := workload.HTTP{Ask: generator.Job{
			Client: client, Path: path, Requests: w.opts.Requests, Connections: w.opts.Connections,
		}}
		out = append(out, watchCell{
			report.Params{"requests": w.opts.Requests, "connections": w.opts.Connections, "keepalive": keep},
			workload.Job{Workload: HTTPWork, Goroutines: 1, Work: &h},
		})
	}
	return out, nil
}
