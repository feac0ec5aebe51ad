// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	ringSuite = "ring"
	nop       = "nop"
)

// RingEnv connects the suite "ring" to the system. All functions must be set.
type RingEnv struct {
	// Round runs one job, in a process of its own.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// ProbeRing returns an error if such a ring cannot be used here.
	ProbeRing func(ring string) error
	// BuildPeer builds the program in C.
	BuildPeer func(context.Context) (Peer, error)
	// Progress shows the progress of the run.
	Progress Progress
}

// Peer is a program, not in Go, that runs jobs.
type Peer interface {
	// Round runs one job in a process of its own. With a window of zero length it is only a trial.
	Round(context.Context, workload.Job) (measure.Sample, error)
	// Remove removes the program's files.
	Remove() error
}

// Ring runs the suite "ring". It always returns a report, which is complete only if the error is
// nil. It removes the program that it compiled in any case.
func Ring(ctx context.Context, opts RingOptions, env RingEnv) (run *report.Run, err error) {
	opts = opts.withDefaults()
	r := &ringRun{runner: newRunner(ringSuite, opts.Timing, env.Progress, ""), opts: opts, env: env, engines: map[string][]string{}}
	r.run.Host.Seed = opts.Seed
	r.probe()
	if len(r.engines) == 0 {
		return r.run, ErrNothing
	}
	r.build(ctx)
	if r.peer != nil {
		defer func() { err = errors.Join(err, r.peer.Remove()) }()
		r.tryPeer(ctx)
	}
	return r.run, r.measure(ctx, r.points())
}

// ringRun is the state of one run of the suite.
type ringRun struct {
	runner
	opts RingOptions
	env  RingEnv
	peer Peer
	// engines are the engines of each usable ring.
	engines map[string][]string
}

func (r *ringRun) skip(s report.Skip) {
	s.Workload = nop
	r.runner.skip(s)
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

// build builds the peer, or notes why it cannot.
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

// tryPeer runs the peer once with each ring. If it works it becomes the baseline.
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
			r.note("%s", s.Reason)
		}
		r.engines[ring] = []string{liburing.Name, engine.NameRingside}
	}
}

// points returns the possible cells with the functions that run them.
func (r *ringRun) points() []point {
	var out []point
	for _, c := range r.opts.cells() {
		if r.engines[c.ring] == nil {
			continue
		}
		out = append(out, point{
			workload: nop,
			params:   report.Params{"ring": c.ring, "batch": c.batch}, engines: r.engines[c.ring],
			round: func(ctx context.Context, name string, _ int) (report.Sample, error) {
				s, err := r.round(ctx, r.job(c, name, r.opts.Duration))
				return sampleOf(s), err
			},
		})
	}
	return out
}

func (r *ringRun) round(ctx context.Context, job workload.Job) (measure.Sample, error) {
	if job.Engine == liburing.Name {
		return r.peer.Round(ctx, job)
	}
	return r.env.Round(ctx, job)
}

// job returns one round. Without a window it is only a trial.
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

// RingOptions are the options of the suite "ring". The zero value is the default run.
type RingOptions struct {
	// Rings and Batches replace an axis of the grid.
	Rings   []string
	Batches []int
	Timing
	// Seed is the user data of the first no-op.
	Seed uint64
}

// ringCell is one point of the grid.
type ringCell struct {
	ring  string
	batch int
}

// Validate returns an error that names the first option that is not valid.
func (o RingOptions) Validate() error {
	return cmp.Or(RingWords().check("ring", o.Rings), between("batch", o.Batches, 1, workload.NopEntries, 1), o.validate())
}

// withDefaults sets the options that are zero.
func (o RingOptions) withDefaults() RingOptions {
	o.setDefaults()
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
