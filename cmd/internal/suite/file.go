// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const fileSuite = "file"

// fileWorkload is one kind of operation that the suite measures. It has no state; the state of a run
// is in the fileRun.
type fileWorkload interface {
	// name is the workload's name in tables and result files.
	name() string
	// cells returns the workload's part of the grid, for options with defaults filled in.
	cells(FileOptions) []cell
	// impossible returns the reason why the cell cannot be measured here, or "". Missing O_DIRECT
	// and missing storages are handled before.
	impossible(*fileRun, cell) string
	// engines returns the engines for the cell. The first is the baseline of the others.
	engines(*fileRun, cell) []string
	// prepare runs once before the cell's rounds.
	prepare(context.Context, *fileRun, cell) error
	// job returns the work of an engine. All jobs of one pair must do the same work.
	job(f *fileRun, c cell, engine string, pair int) (workload.Job, error)
	// check adds notes about a sample to the report.
	check(f *fileRun, c cell, engine string, s measure.Sample)
}

// fileWorkloads are all workloads, in the order in which they are measured.
var fileWorkloads = []fileWorkload{
	randRead{}, batch{}, burner{}, openClose{}, durableAppend{}, randWrite{}, durableWrite{}, pebbleDatabase{},
}

// workloadOf returns the cell's workload.
func workloadOf(c cell) fileWorkload {
	i := slices.IndexFunc(fileWorkloads, func(w fileWorkload) bool { return w.name() == c.workload })
	return fileWorkloads[i]
}

// File runs the suite "file". It always returns a report, which is complete only if the error is
// nil. It removes the files that it created in any case.
func File(ctx context.Context, opts FileOptions, env Env) (run *report.Run, err error) {
	opts = opts.withDefaults()
	f := &fileRun{opts: opts, env: env, stores: map[string]*store{}}
	f.runner = newRunner(fileSuite, opts.Timing, env.Progress, f.target())
	f.run.Host.Seed = opts.Seed
	defer func() { err = errors.Join(err, f.closeStores()) }()
	if err := f.prepare(ctx); err != nil {
		return f.run, err
	}
	return f.run, f.measure(ctx, f.points())
}

// fileRun is the state of one run of the suite.
type fileRun struct {
	runner
	opts FileOptions
	env  Env
	// stores are the available storages by name.
	stores map[string]*store
	// cells are the cells that can be measured.
	cells []cell
	// fio is the path of the program, or "" if it is not used.
	fio string
}

// target is the file or directory that is measured, or "" if only the storage in memory is
// measured.
func (f *fileRun) target() string {
	if f.opts.Fast == FastOnly {
		return ""
	}
	return cmp.Or(f.opts.Path, f.opts.Dir)
}

// prepare opens the storages, and determines the engines and the possible cells.
func (f *fileRun) prepare(ctx context.Context) error {
	if err := f.openStores(ctx); err != nil {
		return err
	}
	about, err := f.env.Round(ctx, workload.Job{Engine: engine.NameRingside})
	if err != nil {
		return fmt.Errorf("get the backend of ringside: %w", err)
	}
	f.run.Host.Backend, f.run.Host.Reason = about.Backend, about.Reason
	if f.cells, err = f.possible(); err != nil {
		return err
	}
	if len(f.cells) == 0 {
		return ErrNothing
	}
	direct := slices.IndexFunc(f.cells, func(c cell) bool { return c.cache == CacheDirect })
	if direct < 0 || f.opts.NoFio {
		return nil
	}
	return f.findFio(ctx, f.stores[f.cells[direct].storage])
}

// points returns the cells with the functions that run them.
func (f *fileRun) points() []point {
	var out []point
	for _, c := range f.cells {
		w := workloadOf(c)
		out = append(out, point{
			workload: c.workload, params: f.params(c), engines: w.engines(f, c),
			prepare: func(ctx context.Context) error { return w.prepare(ctx, f, c) },
			round: func(ctx context.Context, name string, pair int) (report.Sample, error) {
				s, err := f.round(ctx, c, name, pair)
				if err != nil {
					return report.Sample{}, err
				}
				return f.sample(c, name, s), nil
			},
			open: f.env.opener(func(name string, pair int) (workload.Job, error) {
				if isFio(name) {
					return workload.Job{}, errors.ErrUnsupported
				}
				return w.job(f, c, name, pair)
			}),
			sample: func(name string, s measure.Sample) report.Sample { return f.sample(c, name, s) },
		})
	}
	return out
}

// round runs one engine once.
func (f *fileRun) round(ctx context.Context, c cell, name string, pair int) (measure.Sample, error) {
	if isFio(name) {
		return f.fioRound(ctx, c, name, pair)
	}
	j, err := workloadOf(c).job(f, c, name, pair)
	if err != nil {
		return measure.Sample{}, err
	}
	return f.env.Round(ctx, j)
}

// sample checks a sample and turns it into one of the report.
func (f *fileRun) sample(c cell, name string, s measure.Sample) report.Sample {
	workloadOf(c).check(f, c, name, s)
	out := sampleOf(s)
	if c.cache == CacheCold {
		addDeviceShare(out, s)
	}
	return out
}

// params describes the cell in the report. It names the storage unless it is the default.
func (f *fileRun) params(c cell) report.Params {
	p := report.Params{}
	if c.block > 0 {
		p["block"] = c.block
	}
	if c.goroutines > 0 {
		p["goroutines"] = c.goroutines
	}
	if c.cache != "" {
		p["cache"] = c.cache
	}
	if c.storage != StorageDisk {
		p["storage"] = c.storage
	}
	if st := f.stores[c.storage]; st != nil && st.device != "" {
		p["device"] = st.device
	}
	maps.Copy(p, c.more)
	return p
}

// isFio reports whether the engine is the fio program.
func isFio(engine string) bool {
	return engine == fio.Name || engine == fio.NameFixed || engine == fio.NameBatched
}

// findFio finds the program and checks that it can read the storage's file. Without fio the run
// goes on.
func (f *fileRun) findFio(ctx context.Context, st *store) error {
	program, err := f.env.FindFio()
	if err == nil {
		err = f.tryFio(ctx, program, st)
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
	case err != nil:
		f.skip(report.Skip{Engine: fio.Name, Reason: err.Error()})
	}
	return nil
}

// tryFio reads for a moment. The features of fio depend on its build and on the privileges of this
// process.
func (f *fileRun) tryFio(ctx context.Context, program string, st *store) error {
	for _, name := range append([]string{fio.Name}, f.opts.FioAlso...) {
		s, err := f.env.Fio(ctx, program, fio.RandRead{
			Engine: name, Path: st.path, Span: st.size, Block: minBlock, Depth: 1, Measure: time.Millisecond, Seed: f.opts.Seed,
		})
		if err != nil {
			return err
		}
		if s.Backend != "" {
			f.run.Host.Peers = []string{s.Backend}
		}
	}
	f.fio = program
	return nil
}

// fioRound runs fio on the cell, with as many reads in flight as the other engines have.
func (f *fileRun) fioRound(ctx context.Context, c cell, name string, pair int) (measure.Sample, error) {
	depth := c.goroutines
	if c.workload == nameBatch {
		depth = c.count()
	}
	return f.env.Fio(ctx, f.fio, fio.RandRead{
		Engine: name, Path: f.stores[c.storage].path, Span: f.span(c), Block: c.block, Depth: depth,
		Warm: f.opts.warm(), Measure: f.opts.Duration, Seed: f.opts.Seed + uint64(pair),
	})
}
