// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	nameRandRead = "randread"

	// hotSpan is how much of the file is kept in the page cache: more than processor caches
	// hold, less than any machine has.
	hotSpan = 256 << 20
	// coldSpan bounds the list of blocks that are each read once.
	coldSpan = 4 << 30
	// directSize is large enough that a device's own cache does not serve most reads.
	directSize = 1 << 30
)

// randRead reads blocks at random offsets of the storage's file.
type randRead struct{}

func (randRead) name() string { return nameRandRead }

func (randRead) cells(o FileOptions) []cell { return o.randReadCells() }

// impossible names what file or memory cannot carry.
func (randRead) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.goroutines) }

// tooLarge says why the file or memory cannot carry this many buffers at once, "" if they can.
func (f *fileRun) tooLarge(c cell, buffers int) string {
	bytes, free := int64(c.block)*int64(buffers), f.env.AvailableMemory()
	switch span := f.span(c); {
	case span < int64(c.block):
		return fmt.Sprintf("the file has only %d bytes to read", span)
	case free > 0 && bytes > free/2:
		return fmt.Sprintf("its buffers take %d MiB of %d MiB of available memory", bytes>>20, free>>20)
	}
	return ""
}

func (randRead) engines(f *fileRun, c cell) []string {
	engines := []string{engine.NameOS, engine.NameRingside}
	if f.fio != "" && c.cache == CacheDirect {
		engines = append(append(engines, fio.Name), f.opts.FioAlso...)
	}
	return engines
}

// prepare brings the page cache into the state that the cell asks for.
func (randRead) prepare(ctx context.Context, f *fileRun, c cell) error {
	if c.cache == CacheCold {
		f.noteOnce("cold reads: the file is evicted from the page cache before each window, no block is read twice in it, " +
			"and all engines tell the kernel not to read ahead (POSIX_FADV_RANDOM)")
	}
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// setCache brings the page cache of a file into the state that the cell asks for.
func (f *fileRun) setCache(ctx context.Context, c cell, path string) error {
	if c.cache == CacheHot {
		return datafile.ReadIn(ctx, path, f.span(c))
	}
	return datafile.Evict(path)
}

// round runs one engine once. All engines of a pair read the same offsets, except that fio has a
// sequence of its own.
func (randRead) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	if isFio(name) {
		return f.fioRound(ctx, c, name, c.goroutines, pair)
	}
	j := f.job(c, name)
	reads := f.reads(c, pair)
	j.RandRead = &reads
	return f.env.Round(ctx, j)
}

// job is a round of the cell's workload, of which the particulars are missing.
func (f *fileRun) job(c cell, engine string) workload.Job {
	return workload.Job{
		Suite: fileSuite, Workload: c.workload, Engine: engine, Goroutines: c.goroutines,
		Warm: f.opts.warm(), Measure: f.opts.Duration,
	}
}

// reads are the random reads of the cell.
func (f *fileRun) reads(c cell, pair int) workload.RandRead {
	st := f.stores[c.storage]
	return workload.RandRead{
		Path: st.path, Span: f.span(c), Block: c.block, Direct: c.cache == CacheDirect, Cold: c.cache == CacheCold,
		Seed: f.opts.Seed + uint64(pair), Content: st.content(),
	}
}

// check notes when a read that should have met the cache went to the device, or the reverse.
func (randRead) check(f *fileRun, c cell, name string, s measure.Sample) {
	switch {
	case c.cache == CacheHot && s.DeviceReads > s.Bytes/100:
		f.noteOnce("%v: the page cache was not hot: %s got more than 1 %% from the device in a round or more", c, name)
	case c.cache == CacheCold && s.DeviceReads < s.Bytes-s.Bytes/20:
		f.noteOnce("%v: the page cache was not cold: %s got less than 95 %% from the device in a round or more", c, name)
	case c.cache == CacheCold && s.DeviceReads > s.Bytes+s.Bytes/20:
		f.noteOnce("%v: the kernel read ahead: the device gave more than %s asked for in a round or more", c, name)
	}
	if c.cache == CacheCold && s.Elapsed < f.opts.Duration/2 {
		f.noteOnce("%s: the whole file was read after %v, before the window of %v ended; a larger file (--size) makes it longer",
			c, s.Elapsed.Round(time.Millisecond), f.opts.Duration)
	}
}

// span is how many bytes from the start of the file the cell reads.
func (f *fileRun) span(c cell) int64 {
	size := f.stores[c.storage].size
	if c.cache == CacheDirect {
		return size
	}
	span := min(size, hotSpan)
	if c.cache == CacheCold {
		span = min(size, coldSpan)
	}
	if free := f.env.AvailableMemory(); free > 0 {
		span = min(span, max(free/2, minSize))
	}
	return span - span%datafile.UnitSize
}
