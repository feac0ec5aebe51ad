// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	ringSuite = "ring"
	nop       = "nop"
)

// RingEnv is how the suite "ring" reaches the world. All functions must be set.
type RingEnv struct {
	// Round runs one job, in a process of its own.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// ProbeRing reports whether such a ring can be used here.
	ProbeRing func(ring string) error
	// BuildPeer makes the program in C.
	BuildPeer func(context.Context) (Peer, error)
	// Progress is told how far the run is.
	Progress Progress
}

// Peer is a program that runs jobs in another way than Go does.
type Peer interface {
	// Round runs one job in a process of its own; with a window of no length it only tries it.
	Round(context.Context, workload.Job) (measure.Sample, error)
	// Remove removes what the program left on the disk.
	Remove() error
}

// Ring runs the suite "ring". It always returns a report, which is complete only if the error is
// nil; whatever happens, the program it compiled is gone when it returns.
func Ring(ctx context.Context, opts RingOptions, env RingEnv) (run *report.Run, err error) {
	r := &ringRun{opts: opts.withDefaults(), env: env, run: &report.Run{}, engines: map[string][]string{}}
	r.run.Host = hostinfo.Collect("")
	r.run.Host.Seed, r.run.Host.Pairs = r.opts.Seed, r.opts.Pairs
	r.run.Host.DurationMs = float64(r.opts.Duration) / float64(time.Millisecond)
	r.probe()
	if len(r.engines) == 0 {
		return r.run, ErrNothing
	}
	r.build(ctx)
	if r.peer != nil {
		defer func() { err = errors.Join(err, r.peer.Remove()) }()
		r.tryPeer(ctx)
	}
	return r.run, r.measure(ctx)
}

// ringRun is the state of one run of the suite.
type ringRun struct {
	opts RingOptions
	env  RingEnv
	run  *report.Run
	peer Peer
	// engines are those of each ring that can be used.
	engines map[string][]string
}

func (r *ringRun) skip(s report.Skip) {
	s.Suite, s.Workload = ringSuite, nop
	r.run.Skipped = append(r.run.Skipped, s)
}

func (r *ringRun) note(text string) {
	if !slices.Contains(r.run.Notes, text) {
		r.run.Notes = append(r.run.Notes, text)
	}
}

// probe finds the rings that can be used.
func (r *ringRun) probe() {
	for _, ring := range r.opts.Rings {
		if err := r.env.ProbeRing(ring); err != nil {
			r.skip(report.Skip{Params: report.Params{"ring": ring}, Reason: err.Error()})
			continue
		}
		r.engines[ring] = []string{engine.NameRingside}
	}
}

// build makes the peer, or notes why there is none.
func (r *ringRun) build(ctx context.Context) {
	r.env.Progress.Start(1, "compiling the peer")
	peer, err := r.env.BuildPeer(ctx)
	switch {
	case err == nil:
		r.peer = peer
	case ctx.Err() == nil:
		r.skip(report.Skip{Engine: liburing.Name, Reason: err.Error()})
	}
}

// tryPeer lets the peer show that it can use each ring. It is measured first: others are compared
// to it.
func (r *ringRun) tryPeer(ctx context.Context) {
	for _, ring := range r.opts.Rings {
		if r.engines[ring] == nil {
			continue
		}
		s, err := r.peer.Round(ctx, r.job(ringCell{ring: ring, batch: 1}, liburing.Name, 0))
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			r.skip(report.Skip{Engine: liburing.Name, Params: report.Params{"ring": ring}, Reason: err.Error()})
			continue
		}
		r.run.Host.Peers = []string{s.Backend}
		if s.Reason != "" {
			r.note(s.Reason)
		}
		r.engines[ring] = []string{liburing.Name, engine.NameRingside}
	}
}

// measure runs all cells that are possible.
func (r *ringRun) measure(ctx context.Context) error {
	cells := slices.DeleteFunc(r.opts.cells(), func(c ringCell) bool { return r.engines[c.ring] == nil })
	rounds := 0
	for _, c := range cells {
		rounds += r.opts.Pairs * len(r.engines[c.ring])
	}
	r.env.Progress.Start(int64(rounds), "measuring")
	for _, c := range cells {
		if err := r.measureCell(ctx, c); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("stopped after %d of %d cells: %w", len(r.run.Cells), len(cells), ctx.Err())
			}
			return fmt.Errorf("%s, ring %s, batch %d: %w", nop, c.ring, c.batch, err)
		}
	}
	return nil
}

// measureCell runs the engines in turn and adds the cell to the report.
func (r *ringRun) measureCell(ctx context.Context, c ringCell) error {
	engines := r.engines[c.ring]
	samples, err := measure.Interleave(ctx, r.opts.Pairs, engines,
		func(ctx context.Context, name string, _ int) (measure.Sample, error) {
			r.env.Progress.Note("%s ring %s, batch %d", nop, c.ring, c.batch)
			s, err := r.round(ctx, r.job(c, name, r.opts.Duration))
			if err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			r.env.Progress.Add(1)
			return s, nil
		})
	if err != nil {
		return err
	}
	out := report.Cell{
		Suite: ringSuite, Workload: nop, Params: report.Params{"ring": c.ring, "batch": c.batch},
	}
	for i, name := range engines {
		out.Series = append(out.Series, newSeries(name, samples[i]))
	}
	r.run.Cells = append(r.run.Cells, out)
	return nil
}

func (r *ringRun) round(ctx context.Context, job workload.Job) (measure.Sample, error) {
	if job.Engine == liburing.Name {
		return r.peer.Round(ctx, job)
	}
	return r.env.Round(ctx, job)
}

// job is one round. Without a window it is only a trial.
func (r *ringRun) job(c ringCell, name string, window time.Duration) workload.Job {
	j := workload.Job{
		Suite: ringSuite, Workload: nop, Engine: name, Goroutines: 1, Measure: window,
		Nop: &workload.Nop{Ring: c.ring, Batch: c.batch, First: r.opts.Seed},
	}
	if window > 0 {
		j.Warm = warmFor(window)
	}
	return j
}

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
