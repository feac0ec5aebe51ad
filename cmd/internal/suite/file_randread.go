// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"

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
	// directSize is large enough that a device's own cache does not serve most reads.
	directSize = 1 << 30
)

// randRead reads blocks at random offsets of the storage's file.
type randRead struct{}

func (randRead) name() string { return nameRandRead }

func (randRead) cells(o FileOptions) []cell { return o.randReadCells() }

// impossible names what file or memory cannot carry.
func (randRead) impossible(f *fileRun, c cell) string {
	buffers, free := int64(c.block)*int64(c.goroutines), f.env.AvailableMemory()
	switch span := f.span(c); {
	case span < int64(c.block):
		return fmt.Sprintf("the file has only %d bytes to read", span)
	case free > 0 && buffers > free/2:
		return fmt.Sprintf("its buffers take %d MiB of %d MiB of available memory", buffers>>20, free>>20)
	}
	return ""
}

func (randRead) engines(f *fileRun, c cell) []string {
	engines := []string{engine.NameOS, engine.NameRingside}
	if f.fio != "" && c.cache == CacheDirect {
		engines = append(engines, fio.Name)
	}
	return engines
}

// prepare brings the page cache into the state that the cell asks for.
func (randRead) prepare(ctx context.Context, f *fileRun, c cell) error {
	path := f.stores[c.storage].path
	if c.cache == CacheHot {
		return datafile.ReadIn(ctx, path, f.span(c))
	}
	return datafile.Evict(path)
}

// round runs one engine once. All engines of a pair read the same offsets.
func (randRead) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	st, seed := f.stores[c.storage], f.opts.Seed+uint64(pair)
	if name == fio.Name {
		return f.env.Fio(ctx, f.fio, fio.RandRead{
			Path: st.path, Span: f.span(c), Block: c.block, Depth: c.goroutines,
			Warm: f.opts.warm(), Measure: f.opts.Duration, Seed: seed,
		})
	}
	return f.env.Round(ctx, workload.Job{
		Suite: fileSuite, Workload: nameRandRead, Engine: name, Goroutines: c.goroutines,
		Warm: f.opts.warm(), Measure: f.opts.Duration,
		RandRead: &workload.RandRead{
			Path: st.path, Span: f.span(c), Block: c.block, Direct: c.cache == CacheDirect, Seed: seed,
			Content: st.content(),
		},
	})
}

// check notes when a read that should have met the cache went to the device.
func (randRead) check(f *fileRun, c cell, name string, s measure.Sample) {
	if c.cache == CacheHot && s.DeviceReads > s.Bytes/100 {
		f.note("page cache not hot: %s read %d MiB of %d from the device at block %d, %d goroutines",
			name, s.DeviceReads>>20, s.Bytes>>20, c.block, c.goroutines)
	}
}

// span is how many bytes from the start of the file the cell reads.
func (f *fileRun) span(c cell) int64 {
	size := f.stores[c.storage].size
	if c.cache == CacheDirect {
		return size
	}
	span := min(size, hotSpan)
	if free := f.env.AvailableMemory(); free > 0 {
		span = min(span, max(free/2, minSize))
	}
	return span - span%datafile.UnitSize
}
