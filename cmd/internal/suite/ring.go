// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const ringSuite = "ring"

// These are the workloads of the suite "ring".
const (
	NopWork   = "nop"
	ReadsWork = "read"
)

var ringWorks = []string{NopWork, ReadsWork}

// Peer is a program, not in Go, that runs jobs.
type Peer interface {
	// Round runs one job in a process of its own. With a window of zero length it is only a trial.
	Round(context.Context, workload.Job) (measure.Sample, error)
	// Remove removes the program's files.
	Remove() error
}

// Ring runs the suite "ring". It always returns a report, which is complete only if the error is
// nil. It removes the program that it compiled and the file that it created in any case.
func Ring(ctx context.Context, opts RingOptions, env Env) (run *report.Run, err error) {
	opts = opts.withDefaults()
	dir, _ := opts.Space()
	r := &ringRun{runner: newRunner(ringSuite, opts.Timing, env.Progress, dir), opts: opts, env: env, engines: map[string][]string{}}
	r.run.Host.Seed = opts.Seed
	r.probe()
	if len(r.engines) == 0 {
		return r.run, ErrNothing
	}
	if dir != "" {
		defer func() { err = errors.Join(err, r.removeFile()) }()
		if r.file, err = r.makeFile(ctx, env.maker, dir, ringFileSize); err != nil {
			return r.run, err
		}
		r.run.Host.FileBytes, r.run.Host.Verified = r.file.Size(), true
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
	env  Env
	peer Peer
	// engines are the engines of each usable ring.
	engines map[string][]string
	// file is the file that is read, or nil.
	file *datafile.File
}

// skip reports a part that is left out. It names the workload if only one is measured.
func (r *ringRun) skip(s report.Skip) {
	if len(r.opts.Workloads) == 1 {
		s.Workload = r.opts.Workloads[0]
	}
	r.runner.skip(s)
}

func (r *ringRun) removeFile() error {
	if r.file == nil {
		return nil
	}
	return r.file.Remove()
}

// probe finds the rings that can be used.
func (r *ringRun) probe() {
	for _, ring := range r.opts.Rings {
		if err := r.env.probeRing(ring); err != nil {
			r.skip(report.Skip{Params: report.Params{"ring": ring}, Reason: err.Error()})
			continue
		}
		r.engines[ring] = []string{engine.NameRingside}
	}
}

// build builds the peer, or notes why it cannot.
func (r *ringRun) build(ctx context.Context) {
	r.env.Progress.Start(1, "compiling the peer")
	peer, err := r.env.buildRing(ctx)
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
		s, err := r.peer.Round(ctx, r.job(ringCell{work: NopWork, ring: ring, batch: 1}, liburing.Name, 0, 0))
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
	for _, c := range r.possible() {
		out = append(out, point{
			workload: c.work, params: c.params(), engines: r.engines[c.ring],
			prepare: func(ctx context.Context) error { return r.prepare(ctx, c) },
			round: func(ctx context.Context, name string, pair int) (report.Sample, error) {
				s, err := r.round(ctx, r.job(c, name, pair, r.opts.Duration))
				return sampleOf(s), err
			},
		})
	}
	return out
}

// possible returns the cells of usable rings, without those with O_DIRECT where the file cannot be
// read so.
func (r *ringRun) possible() []ringCell {
	cells := slices.DeleteFunc(r.opts.cells(), func(c ringCell) bool { return r.engines[c.ring] == nil })
	direct := func(c ringCell) bool { return c.cache == CacheDirect }
	if !slices.ContainsFunc(cells, direct) {
		return cells
	}
	if err := r.env.probeDirect(r.file.Path()); err != nil {
		r.runner.skip(report.Skip{
			Workload: ReadsWork, Params: report.Params{"cache": CacheDirect},
			Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err),
		})
		cells = slices.DeleteFunc(cells, direct)
	}
	return cells
}

// prepare brings the page cache into the state that the cell requires.
func (r *ringRun) prepare(ctx context.Context, c ringCell) error {
	switch c.cache {
	case CacheHot:
		return datafile.ReadIn(ctx, r.file.Path(), r.file.Size())
	case CacheDirect:
		return datafile.Evict(r.file.Path())
	}
	return nil
}

func (r *ringRun) round(ctx context.Context, job workload.Job) (measure.Sample, error) {
	if job.Engine == liburing.Name {
		return r.peer.Round(ctx, job)
	}
	return r.env.Workers.Round(ctx, job)
}

// job returns one round. Without a window it is only a trial.
func (r *ringRun) job(c ringCell, name string, pair int, window time.Duration) workload.Job {
	j := workload.Job{Suite: ringSuite, Workload: c.work, Engine: name, Goroutines: 1, Measure: window}
	if window > 0 {
		j.Warm = warmFor(window)
	}
	if c.work == NopWork {
		j.Work = &workload.Nop{Ring: c.ring, Batch: c.batch, First: r.opts.Seed}
		return j
	}
	j.Work = &workload.Reads{
		Ring: c.ring, Depth: c.depth, Path: r.file.Path(), Span: r.file.Size(), Content: r.file.Seed(),
		Direct: c.cache == CacheDirect, Seed: r.opts.Seed + uint64(pair),
	}
	return j
}

// RingOptions are the options of the suite "ring". The zero value is the default run: no-ops.
type RingOptions struct {
	// Workloads are the workloads to measure. Dir holds the file that is read. If it is empty,
	// [DefaultDir] chooses it.
	Workloads []string
	Dir       string
	// Rings, Batches, Depths and Caches replace an axis of the grid.
	Rings   []string
	Batches []int
	Depths  []int
	Caches  []string
	Timing
	// Seed is the user data of the first no-op, the content of the file, and the seed of the offsets.
	Seed uint64
}

// ringCell is one point of the grid: no-ops in batches, or reads with so many in flight.
type ringCell struct {
	work, ring string
	batch      int
	depth      int
	cache      string
}

func (c ringCell) params() report.Params {
	if c.work == NopWork {
		return report.Params{"ring": c.ring, "batch": c.batch}
	}
	return report.Params{"ring": c.ring, "cache": c.cache, "depth": c.depth, "block": workload.ReadsBlock}
}

// Validate returns an error that names the first option that is not valid.
func (o RingOptions) Validate() error {
	words := RingWords()
	return cmp.Or(words.check("workload", o.Workloads), words.check("ring", o.Rings), words.check("cache", o.Caches),
		between("batch", o.Batches, 1, workload.NopEntries, 1), between("depth", o.Depths, 1, workload.NopEntries, 1), o.validate())
}

// withDefaults sets the options that are zero.
func (o RingOptions) withDefaults() RingOptions {
	o.setDefaults()
	o.Workloads = orThese(o.Workloads, NopWork)
	o.Rings = orThese(o.Rings, workload.RingDefault, workload.RingDefer)
	o.Batches = orThese(o.Batches, 1, 16, 128)
	o.Depths = orThese(o.Depths, 1, 8, 32, 128)
	o.Caches = orThese(o.Caches, CacheHot, CacheDirect)
	if o.Dir == "" {
		o.Dir = DefaultDir()
	}
	return o
}

// ringFileSize is the size in bytes of the file that is read.
const ringFileSize = hotSpan

// Space returns the directory of the file and its size in bytes, or "" if nothing is read.
func (o RingOptions) Space() (dir string, bytes int64) {
	o = o.withDefaults()
	if !slices.Contains(o.Workloads, ReadsWork) {
		return "", 0
	}
	return o.Dir, datafile.MinSize
}

// cells returns the grid.
func (o RingOptions) cells() []ringCell {
	var out []ringCell
	for _, work := range o.Workloads {
		for _, ring := range o.Rings {
			if work == NopWork {
				for _, batch := range o.Batches {
					out = append(out, ringCell{work: work, ring: ring, batch: batch})
				}
				continue
			}
			for _, cache := range o.Caches {
				for _, depth := range o.Depths {
					out = append(out, ringCell{work: work, ring: ring, depth: depth, cache: cache})
				}
			}
		}
	}
	return out
}
