// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	nameRandWrite = "randwrite"

	// directWrites and bufferedWrites are how many bytes of the file are overwritten. What goes to
	// the page cache is kept so small that the kernel does not make the writers wait.
	directWrites   = 256 << 20
	bufferedWrites = 64 << 20
)

// randWrite overwrites blocks at random offsets of a file that is made for it.
type randWrite struct{ bothEngines }

func (randWrite) name() string { return nameRandWrite }

func (randWrite) cells(o FileOptions) []cell {
	var out []cell
	for _, cache := range []string{CacheDirect, CacheHot} {
		if !o.wants(cache) {
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

// impossible names what storage or memory cannot carry.
func (randWrite) impossible(f *fileRun, c cell) string {
	if reason := f.readOnly(c); reason != "" {
		return reason
	}
	return f.tooLarge(c, c.goroutines)
}

// prepare makes the file if this is the first cell, writes to the device what earlier rounds left
// in the page cache, and brings the cache into the state that the cell asks for.
func (randWrite) prepare(ctx context.Context, f *fileRun, c cell) error {
	st := f.stores[c.storage]
	if st.written == nil {
		f.env.Progress.Note("writing the file to overwrite")
		made, err := f.env.Maker.Make(ctx, st.dir, min(st.size, directWrites), f.opts.Seed, nil)
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

// round runs one engine once. Both halves of a pair write to the same offsets, but not the same:
// the check would take what the first wrote for the second's.
func (randWrite) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	st := f.stores[c.storage]
	st.writes++
	j := f.job(c, name)
	j.RandWrite = &workload.RandWrite{
		Path: st.written.Path(), Span: writeSpan(c, st.written), Block: c.block, Direct: c.cache == CacheDirect,
		Seed: f.opts.Seed + uint64(pair), Stamp: f.opts.Seed<<16 + st.writes,
	}
	return f.env.Round(ctx, j)
}
