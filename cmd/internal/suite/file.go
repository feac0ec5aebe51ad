// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/features"
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
	about, err := f.env.Workers.Round(ctx, workload.Job{Engine: engine.NameRingside})
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

// possible returns the cells that can be measured here, and notes the others as skipped.
func (f *fileRun) possible() ([]cell, error) {
	cells := slices.DeleteFunc(f.opts.cells(), func(c cell) bool { return f.stores[c.storage] == nil })
	for _, storage := range f.opts.storages() {
		for _, probe := range []struct {
			cache    string
			try      func(path string) error
			cannot   error
			question string
		}{
			{CacheDirect, f.env.probeDirect, workload.ErrNoDirect, "try O_DIRECT"},
			{CacheCold, f.env.probeEvict, datafile.ErrCached, "try to evict the file"},
		} {
			here := func(c cell) bool { return c.cache == probe.cache && c.storage == storage }
			if !slices.ContainsFunc(cells, here) {
				continue
			}
			err := probe.try(f.stores[storage].path)
			if err != nil && !errors.Is(err, probe.cannot) {
				return nil, fmt.Errorf("%s: %w", probe.question, err)
			}
			if err != nil {
				f.skipCache(cell{storage: storage, cache: probe.cache}, err)
				cells = slices.DeleteFunc(cells, here)
			}
		}
	}
	return slices.DeleteFunc(cells, f.impossible), nil
}

// skipCache notes that all cells with one state of the cache on one storage are left out.
func (f *fileRun) skipCache(c cell, err error) {
	p := report.Params{"cache": c.cache}
	if c.storage != StorageDisk {
		p["storage"] = c.storage
	}
	f.skip(report.Skip{Params: p, Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err)})
}

// impossible reports whether the cell cannot be measured here, and notes the reason.
func (f *fileRun) impossible(c cell) bool {
	reason := workloadOf(c).impossible(f, c)
	if reason != "" {
		s := report.Skip{Workload: c.workload, Params: f.params(c), Reason: reason}
		if reason == ycsb.ErrMissing.Error() {
			s.Params = nil // this build has no cell of the workload
		}
		f.skip(s)
	}
	return reason != ""
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
			open: f.env.Workers.opener(func(name string, pair int) (workload.Job, error) {
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
	return f.env.Workers.Round(ctx, j)
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

const (
	nameRandRead = "randread"

	// hotSpan is the part of the file that is kept in the page cache: more than processor caches
	// hold, and less than the memory of any machine.
	hotSpan = 256 << 20
	// coldSpan limits the list of blocks that are each read once.
	coldSpan = 4 << 30
	// directSize is large enough that a device's own cache does not serve most reads.
	directSize = 1 << 30
)

// randRead reads blocks at random offsets of the storage's file.
type randRead struct{}

func (randRead) name() string { return nameRandRead }

func (randRead) cells(o FileOptions) []cell { return o.randReadCells() }

// impossible returns a limit of the file or of memory, or "".
func (randRead) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.goroutines) }

// tooLarge returns the reason why the file or memory is too small for this many buffers, or "".
func (f *fileRun) tooLarge(c cell, buffers int) string {
	bytes, free := int64(c.block)*int64(buffers), f.env.availableMemory()
	switch span := f.span(c); {
	case span < int64(c.block):
		return fmt.Sprintf("the file has only %d bytes to read", span)
	case free > 0 && bytes > free/2:
		return fmt.Sprintf("its buffers take %d MiB of %d MiB of available memory", bytes>>20, free>>20)
	}
	return ""
}

// engines adds, with Full or a given axis, a pool of registered buffers where io_uring can be used.
func (randRead) engines(f *fileRun, c cell) []string {
	engines := []string{engine.NameOS, engine.NameRingside}
	given := f.opts.Full || len(f.opts.Blocks)+len(f.opts.Goroutines) > 0
	if given && c.cache == CacheDirect && f.run.Host.Backend == features.ModeRing.String() {
		engines = append(engines, engine.NameBuffers)
	}
	if f.fio != "" && c.cache == CacheDirect {
		engines = append(append(engines, fio.Name), f.opts.FioAlso...)
	}
	return engines
}

// prepare evicts or loads the page cache as the cell requires.
func (randRead) prepare(ctx context.Context, f *fileRun, c cell) error {
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// setCache evicts or loads the page cache of a file as the cell requires.
func (f *fileRun) setCache(ctx context.Context, c cell, path string) error {
	if c.cache == CacheHot {
		return datafile.ReadIn(ctx, path, f.span(c))
	}
	return datafile.Evict(path)
}

// job returns the reads of an engine. All engines of a pair read the same offsets, except fio, which
// has its own sequence.
func (randRead) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	j := f.job(c, name)
	reads := f.reads(c, pair)
	j.Work = &reads
	return j, nil
}

// job returns a round of the cell's workload without the workload's parameters.
func (f *fileRun) job(c cell, engine string) workload.Job {
	return workload.Job{
		Suite: fileSuite, Workload: c.workload, Engine: engine, Goroutines: c.goroutines,
		Warm: f.opts.warm(), Measure: f.opts.Duration,
	}
}

// reads returns the random reads of the cell.
func (f *fileRun) reads(c cell, pair int) workload.RandRead {
	st := f.stores[c.storage]
	return workload.RandRead{
		Path: st.path, Span: f.span(c), Block: c.block, Direct: c.cache == CacheDirect, Cold: c.cache == CacheCold,
		Seed: f.opts.Seed + uint64(pair), Content: st.content(),
	}
}

// check adds a note if cached reads went to the device, or if cold reads did not.
func (randRead) check(f *fileRun, c cell, name string, s measure.Sample) {
	point := describe(c.workload, f.params(c))
	switch {
	case c.cache == CacheHot && s.DeviceReads > s.Bytes/100:
		f.note("%s: the page cache was not hot: %s got more than 1 %% from the device in a round or more", point, name)
	case c.cache == CacheCold && s.DeviceReads < s.Bytes-s.Bytes/20:
		f.note("%s: the page cache was not cold: %s got less than 95 %% from the device in a round or more", point, name)
	case c.cache == CacheCold && s.DeviceReads > s.Bytes+s.Bytes/20:
		f.note("%s: the kernel read ahead: the device gave more than %s asked for in a round or more", point, name)
	}
}

// span returns the number of bytes, from the start of the file, that the cell reads.
func (f *fileRun) span(c cell) int64 {
	size := f.stores[c.storage].size
	if c.cache == CacheDirect {
		return size
	}
	span := min(size, hotSpan)
	if c.cache == CacheCold {
		span = min(size, coldSpan)
	}
	if free := f.env.availableMemory(); free > 0 {
		span = min(span, max(free/2, minSize))
	}
	return span - span%datafile.UnitSize
}
