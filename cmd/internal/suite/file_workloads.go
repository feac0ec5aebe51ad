// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"runtime"
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/features"
)

// bothEngines is embedded by workloads that compare ringside with os and add no notes to samples.
type bothEngines struct{}

func (bothEngines) engines(*fileRun, cell) []string {
	return []string{engine.NameOS, engine.NameRingside}
}

func (bothEngines) check(*fileRun, cell, string, measure.Sample) {}

// readOnly returns the reason why a workload that writes cannot use the cell's storage, or "".
func (f *fileRun) readOnly(c cell) string {
	if f.stores[c.storage].made == nil {
		return "it writes, and the file of --path is only read: choose a directory with --dir"
	}
	return ""
}

const (
	nameRandWrite = "randwrite"

	// directWrites and bufferedWrites are the numbers of bytes of the file that are overwritten.
	// bufferedWrites is so small that the kernel does not throttle the writers.
	directWrites   = 256 << 20
	bufferedWrites = 64 << 20
)

// randWrite overwrites blocks at random offsets of a file that is made for it.
type randWrite struct{ bothEngines }

func (randWrite) name() string { return nameRandWrite }

func (randWrite) cells(o FileOptions) []cell {
	var out []cell
	for _, cache := range []string{CacheDirect, CacheHot} {
		if !o.wants(cache) || o.Brief {
			continue
		}
		for _, g := range o.goroutinesOr(writerCounts(o, cache)...) {
			for _, block := range o.blocksOr(4 << 10) {
				out = append(out, cell{workload: nameRandWrite, storage: o.storages()[0], cache: cache, goroutines: g, block: block})
			}
		}
	}
	return out
}

func writerCounts(o FileOptions, cache string) []int {
	switch {
	case o.Full:
		return []int{1, 32, 128, 512}
	case o.Brief:
		return []int{32}
	case cache == CacheHot:
		return []int{1}
	}
	return []int{1, 32, 128}
}

// impossible returns a limit of the storage or of memory, or "".
func (randWrite) impossible(f *fileRun, c cell) string {
	if reason := f.readOnly(c); reason != "" {
		return reason
	}
	return f.tooLarge(c, c.goroutines)
}

// prepare creates the file for the first cell. It writes the dirty pages of earlier rounds to the
// device, and brings the cache into the state that the cell requires.
func (randWrite) prepare(ctx context.Context, f *fileRun, c cell) error {
	st := f.stores[c.storage]
	if st.written == nil {
		f.env.Progress.Note("writing the file to overwrite")
		made, err := f.env.maker.Make(ctx, st.dir, min(st.size, directWrites), f.opts.Seed, nil)
		if err != nil {
			return fmt.Errorf("create a file to overwrite: %w", err)
		}
		st.written = made
	}
	if c.cache == CacheHot {
		return datafile.ReadIn(ctx, st.written.Path(), writeSpan(c, st.written))
	}
	return datafile.Evict(st.written.Path())
}

func writeSpan(c cell, file *datafile.File) int64 {
	if c.cache == CacheDirect {
		return file.Size()
	}
	return min(file.Size(), bufferedWrites)
}

// job returns the work of an engine. Both halves of a pair write to the same offsets, with different
// stamps, so that the check can tell them apart.
func (randWrite) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	st := f.stores[c.storage]
	st.writes++
	j := f.job(c, name)
	j.Work = &workload.RandWrite{
		Path: st.written.Path(), Span: writeSpan(c, st.written), Block: c.block, Direct: c.cache == CacheDirect,
		Sync: c.workload == nameSync, Seed: f.opts.Seed + uint64(pair), Stamp: f.opts.Seed<<16 + st.writes,
	}
	return j, nil
}

const nameSync = "sync"

// durableWrite is a buffered randWrite in which each goroutine makes a block durable before it
// writes the next one.
type durableWrite struct{ randWrite }

func (durableWrite) name() string { return nameSync }

// engines adds, with Full, io_uring for every call where it can be used.
func (w durableWrite) engines(f *fileRun, c cell) []string {
	engines := w.randWrite.engines(f, c)
	if f.opts.Full && f.run.Host.Backend == features.ModeRing.String() {
		engines = append(engines, engine.NameRing)
	}
	return engines
}

func (durableWrite) cells(o FileOptions) []cell {
	if o.Brief || !o.wants(CacheHot) {
		return nil
	}
	own := []int{1, 16}
	if o.Full {
		own = append(own, 64)
	}
	var out []cell
	for _, g := range o.goroutinesOr(own...) {
		for _, block := range o.blocksOr(k4) {
			out = append(out, cell{workload: nameSync, storage: o.storages()[0], cache: CacheHot, goroutines: g, block: block})
		}
	}
	return out
}

const (
	nameBatch = "batch"
	// paramCount is the number of reads per call.
	paramCount = "count"
)

// batch reads many blocks with one call from one goroutine. It compares an errgroup of os reads
// with ufile.Batch.
type batch struct{ bothEngines }

func (batch) name() string { return nameBatch }

func (batch) cells(o FileOptions) []cell {
	var out []cell
	for _, storage := range o.storages() {
		for _, cache := range []string{CacheDirect, CacheHot} {
			if !o.wants(cache) || cache == CacheHot && (storage == StorageFast || o.Brief) {
				continue // The page cache is the same on every storage.
			}
			for _, block := range batchBlocks(o, cache) {
				for _, count := range batchCounts(o, cache) {
					out = append(out, cell{
						workload: nameBatch, storage: storage, cache: cache, goroutines: 1, block: block,
						more: report.Params{paramCount: count},
					})
				}
			}
		}
	}
	return out
}

func batchBlocks(o FileOptions, cache string) []int {
	switch {
	case cache == CacheHot && !o.Brief, o.Full:
		return o.blocksOr(4<<10, 64<<10)
	}
	return o.blocksOr(4 << 10)
}

// batchCounts leaves the small batch out for cached reads, where it has the same result as the
// large one.
func batchCounts(o FileOptions, cache string) []int {
	if o.Full || cache == CacheDirect && !o.Brief {
		return []int{16, 128}
	}
	return []int{128}
}

func (c cell) count() int { return c.more[paramCount].(int) }

// impossible returns a limit of the file or of memory, or "".
func (batch) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.count()) }

func (b batch) engines(f *fileRun, c cell) []string {
	engines := b.bothEngines.engines(f, c)
	if f.fio != "" && c.cache == CacheDirect {
		engines = append(engines, fio.NameBatched)
	}
	return engines
}

func (batch) prepare(ctx context.Context, f *fileRun, c cell) error {
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// job returns the reads of an engine. All engines of a pair read the same offsets, except fio, which
// has its own sequence.
func (batch) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	j := f.job(c, name)
	j.Work = &workload.Batch{RandRead: f.reads(c, pair), Count: c.count()}
	return j, nil
}

// check adds a note if cached reads went to the device.
func (batch) check(f *fileRun, c cell, name string, s measure.Sample) {
	randRead{}.check(f, c, name, s)
}

const (
	nameAppend = "append"
	// paramRecord is the size of a record in bytes.
	paramRecord = "record"

	recordSize = 128
)

// durableAppend appends records to one log from several goroutines. Each record is on the disk when
// its append returns. It compares os.File behind a mutex with a plain group commit in Go, whose files
// have a length and a checksum for each record, and appendlog.Log.
type durableAppend struct{ bothEngines }

func (durableAppend) name() string { return nameAppend }

func (durableAppend) cells(o FileOptions) []cell {
	own := []int{1, 8, 64}
	switch {
	case o.Brief:
		own = own[2:]
	case o.Full:
		own = append(own, 512)
	}
	var out []cell
	for _, record := range orOwn(o.Records, []int{recordSize, k4}) {
		for _, g := range o.goroutinesOr(own...) {
			out = append(out, cell{
				workload: nameAppend, storage: o.storages()[0], goroutines: g, more: report.Params{paramRecord: record},
			})
		}
	}
	return out
}

func (durableAppend) impossible(f *fileRun, c cell) string { return f.readOnly(c) }

// engines leaves out the mutex in a brief run: no program with many writers would use it.
func (durableAppend) engines(f *fileRun, _ cell) []string {
	if f.opts.Brief {
		return []string{engine.NameOS, engine.NameRingside}
	}
	return []string{engine.NameOS, engine.NameOSMutex, engine.NameRingside}
}

// prepare does nothing: each round creates its log.
func (durableAppend) prepare(context.Context, *fileRun, cell) error { return nil }

// job returns the work of an engine.
func (durableAppend) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	dir, err := f.stores[c.storage].made.Scratch()
	if err != nil {
		return workload.Job{}, err
	}
	j := f.job(c, name)
	j.Work = &workload.Append{Dir: dir, Record: c.more[paramRecord].(int), Seed: f.opts.Seed + uint64(pair)}
	return j, nil
}

const (
	nameBurner = "burner"
	// paramComputing is the number of computing goroutines.
	paramComputing = "computing"
)

// burner reads while goroutines compute: first one of them, then one per processor. It reports the
// rate of computation too.
type burner struct{ bothEngines }

func (burner) name() string { return nameBurner }

func (burner) cells(o FileOptions) []cell {
	if o.Brief || !o.wants(CacheDirect) {
		return nil
	}
	var out []cell
	for _, g := range o.goroutinesOr(32) {
		for _, block := range o.blocksOr(4 << 10) {
			for _, computing := range slices.Compact([]int{1, runtime.GOMAXPROCS(0)}) {
				out = append(out, cell{
					workload: nameBurner, storage: o.storages()[0], cache: CacheDirect, goroutines: g, block: block,
					more: report.Params{paramComputing: computing},
				})
			}
		}
	}
	return out
}

// impossible returns a limit of the file or of memory, or "".
func (burner) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.goroutines) }

func (burner) prepare(ctx context.Context, f *fileRun, c cell) error {
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// burnerWindows makes the windows longer. The results depend on the scheduler's time slices of 10
// ms, and a short window has too few of them.
const burnerWindows = 3

// job returns the work of an engine. Both halves of a pair read the same offsets.
func (burner) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	j := f.job(c, name)
	j.Measure *= burnerWindows
	j.Warm = warmFor(j.Measure)
	j.Work = &workload.Burner{RandRead: f.reads(c, pair), Burners: c.more[paramComputing].(int)}
	return j, nil
}
