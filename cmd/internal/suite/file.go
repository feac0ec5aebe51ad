// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	fileSuite = "file"
	randRead  = "randread"

	// hotSpan is how much of the file is kept in the page cache: more than processor caches
	// hold, less than any machine has.
	hotSpan = 256 << 20
	// directSize is large enough that a device's own cache does not serve most reads.
	directSize = 1 << 30
)

// File runs the suite "file". It always returns a report, which is complete only if the error is
// nil; whatever happens, the file it created is gone when it returns.
func File(ctx context.Context, opts FileOptions, env Env) (run *report.Run, err error) {
	f := &fileRun{opts: opts.withDefaults(), env: env, run: &report.Run{}}
	f.describe()
	defer func() {
		if f.made != nil {
			err = errors.Join(err, f.made.Remove())
		}
	}()
	if err := f.prepare(ctx); err != nil {
		return f.run, err
	}
	return f.run, f.measure(ctx)
}

// fileRun is the state of one run of the suite.
type fileRun struct {
	opts FileOptions
	env  Env
	run  *report.Run
	path string
	size int64
	made *datafile.File
	fio  string
}

// describe notes machine and storage before anything is created.
func (f *fileRun) describe() {
	target := f.opts.Path
	if target == "" {
		target = f.opts.Dir
	}
	h := hostinfo.Collect(target)
	h.Seed, h.Pairs = f.opts.Seed, f.opts.Pairs
	h.DurationMs = float64(f.opts.Duration) / float64(time.Millisecond)
	f.run.Host = h
}

// prepare finds the file, the engines and what of the grid is possible.
func (f *fileRun) prepare(ctx context.Context) error {
	if err := f.openFile(ctx); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("stopped before anything was measured: %w", ctx.Err())
		}
		f.skip(report.Skip{Workload: randRead, Reason: err.Error()})
		return ErrNothing
	}
	f.run.Host.FileBytes, f.run.Host.Verified = f.size, f.made != nil
	about, err := f.env.Round(ctx, workload.Job{Engine: engine.NameRingside})
	if err != nil {
		return fmt.Errorf("ask ringside for its backend: %w", err)
	}
	f.run.Host.Backend, f.run.Host.Reason = about.Backend, about.Reason
	if f.opts.Fio {
		f.findFio()
	}
	return nil
}

// openFile takes the user's file or makes one, after removing what dead runs left there.
func (f *fileRun) openFile(ctx context.Context) error {
	if f.opts.Path != "" {
		f.path = f.opts.Path
		size, err := datafile.SizeOf(f.path)
		f.size = size
		return err
	}
	// A directory that cannot be listed may still take a new file.
	if stale, err := datafile.Sweep(f.opts.Dir); err == nil {
		for _, path := range stale {
			f.note("removed %s, which a killed run had left", path)
		}
	}
	f.env.Progress.Start(f.opts.Size, "writing the test file")
	made, err := f.env.Maker.Make(ctx, f.opts.Dir, f.opts.Size, f.opts.Seed, f.env.Progress.Add)
	if err != nil {
		return fmt.Errorf("create a test file (--dir chooses where, --path takes an existing one): %w", err)
	}
	f.made, f.path, f.size = made, made.Path(), made.Size()
	if f.size < f.opts.Size {
		f.note("the test file has %d MiB instead of %d: %s has no room for more", f.size>>20, f.opts.Size>>20, f.opts.Dir)
	}
	return nil
}

func (f *fileRun) findFio() {
	program, err := f.env.FindFio()
	if err != nil {
		f.skip(report.Skip{Workload: randRead, Engine: fio.Name, Reason: err.Error()})
		return
	}
	f.fio = program
}

func (f *fileRun) note(format string, args ...any) {
	f.run.Notes = append(f.run.Notes, fmt.Sprintf(format, args...))
}

func (f *fileRun) skip(s report.Skip) {
	s.Suite = fileSuite
	f.run.Skipped = append(f.run.Skipped, s)
}

// measure runs all cells that are possible.
func (f *fileRun) measure(ctx context.Context) error {
	cells, err := f.possible()
	if err != nil {
		return err
	}
	if len(cells) == 0 {
		return ErrNothing
	}
	rounds := 0
	for _, c := range cells {
		rounds += f.opts.Pairs * len(f.engines(c))
	}
	f.env.Progress.Start(int64(rounds), "measuring")
	for _, c := range cells {
		if err := f.measureCell(ctx, c); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("stopped after %d of %d cells: %w", len(f.run.Cells), len(cells), ctx.Err())
			}
			return fmt.Errorf("%s %s, %d goroutines, block %d: %w", randRead, c.cache, c.goroutines, c.block, err)
		}
	}
	return nil
}

func (f *fileRun) engines(c cell) []string {
	engines := []string{engine.NameOS, engine.NameRingside}
	if f.fio != "" && c.cache == CacheDirect {
		engines = append(engines, fio.Name)
	}
	return engines
}

// measureCell runs the engines in turn and adds the cell to the report.
func (f *fileRun) measureCell(ctx context.Context, c cell) error {
	if err := f.setCache(ctx, c); err != nil {
		return err
	}
	engines := f.engines(c)
	samples, err := measure.Interleave(ctx, f.opts.Pairs, engines,
		func(ctx context.Context, name string, pair int) (measure.Sample, error) {
			f.env.Progress.Note("%s %s %s × %d", randRead, c.cache, report.FormatBytes(int64(c.block)), c.goroutines)
			s, err := f.round(ctx, c, name, pair)
			if err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			f.env.Progress.Add(1)
			return s, nil
		})
	if err != nil {
		return err
	}
	f.add(c, engines, samples)
	return nil
}

// setCache brings the page cache into the state that the cell asks for.
func (f *fileRun) setCache(ctx context.Context, c cell) error {
	if c.cache == CacheHot {
		return datafile.ReadIn(ctx, f.path, f.span(c))
	}
	return datafile.Evict(f.path)
}

// span is how many bytes from the start of the file the cell reads.
func (f *fileRun) span(c cell) int64 {
	if c.cache == CacheDirect {
		return f.size
	}
	span := min(f.size, hotSpan)
	if free := f.env.AvailableMemory(); free > 0 {
		span = min(span, max(free/2, minSize))
	}
	return span - span%datafile.UnitSize
}

// round runs one engine once. Both halves of a pair read the same offsets.
func (f *fileRun) round(ctx context.Context, c cell, name string, pair int) (measure.Sample, error) {
	seed := f.opts.Seed + uint64(pair)
	if name == fio.Name {
		return f.env.Fio(ctx, f.fio, fio.RandRead{
			Path: f.path, Span: f.span(c), Block: c.block, Depth: c.goroutines,
			Warm: f.opts.warm(), Measure: f.opts.Duration, Seed: seed,
		})
	}
	job := workload.Job{
		Suite: fileSuite, Workload: randRead, Engine: name, Goroutines: c.goroutines,
		Warm: f.opts.warm(), Measure: f.opts.Duration,
		RandRead: &workload.RandRead{
			Path: f.path, Span: f.span(c), Block: c.block, Direct: c.cache == CacheDirect, Seed: seed,
		},
	}
	if f.made != nil {
		content := f.made.Seed()
		job.RandRead.Content = &content
	}
	return f.env.Round(ctx, job)
}

// add puts the samples of a finished cell into the report.
func (f *fileRun) add(c cell, engines []string, samples [][]measure.Sample) {
	out := report.Cell{Suite: fileSuite, Workload: randRead, Params: f.params(c)}
	for i, name := range engines {
		for _, sample := range samples[i] {
			f.checkHot(c, name, sample)
		}
		out.Series = append(out.Series, newSeries(name, samples[i]))
	}
	f.run.Cells = append(f.run.Cells, out)
}

// newSeries turns an engine's samples into those of a report.
func newSeries(engine string, samples []measure.Sample) report.Series {
	s := report.Series{Engine: engine}
	for _, sample := range samples {
		s.Samples = append(s.Samples, report.Sample{Iterations: sample.Ops, Metrics: sample.Metrics()})
	}
	return s
}

// checkHot notes when a read that should have met the cache went to the device.
func (f *fileRun) checkHot(c cell, name string, s measure.Sample) {
	if c.cache == CacheHot && s.DeviceReads > s.Bytes/100 {
		f.note("page cache not hot: %s read %d MiB of %d from the device at block %d, %d goroutines",
			name, s.DeviceReads>>20, s.Bytes>>20, c.block, c.goroutines)
	}
}

func (f *fileRun) params(c cell) report.Params {
	p := report.Params{"block": c.block, "goroutines": c.goroutines, "cache": c.cache}
	if f.run.Host.Device != "" {
		p["device"] = f.run.Host.Device
	}
	return p
}
