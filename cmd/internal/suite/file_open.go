// SPDX-License-Identifier: MIT

package suite

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const nameOpen = "open"

// openClose opens the storage's file and closes it. It reads one block in between, or none: then
// the cell has no state of the page cache and no block.
type openClose struct{ bothEngines }

func (openClose) name() string { return nameOpen }

// cells leaves out the cells without a read if the user chose states of the page cache or blocks.
func (openClose) cells(o FileOptions) []cell {
	if o.Brief {
		return nil
	}
	own := []int{1}
	if o.Full {
		own = append(own, 16)
	}
	var parts []part
	if !o.cachesGiven && len(o.Blocks) == 0 {
		parts = append(parts, part{blocks: []int{0}})
	}
	for _, cache := range []string{CacheHot, CacheDirect} {
		if o.wants(cache) {
			parts = append(parts, part{cache: cache, blocks: o.blocksOr(k4)})
		}
	}
	var out []cell
	for _, p := range parts {
		for _, g := range o.goroutinesOr(own...) {
			for _, block := range p.blocks {
				out = append(out, cell{workload: nameOpen, storage: o.storages()[0], cache: p.cache, goroutines: g, block: block})
			}
		}
	}
	return out
}

// impossible returns a limit of the file or of memory, or "".
func (openClose) impossible(f *fileRun, c cell) string { return f.tooLarge(c, c.goroutines) }

func (openClose) prepare(ctx context.Context, f *fileRun, c cell) error {
	if c.block == 0 {
		return nil
	}
	return f.setCache(ctx, c, f.stores[c.storage].path)
}

// job returns the work of an engine. Both halves of a pair read the same offsets.
func (openClose) job(f *fileRun, c cell, name string, pair int) (workload.Job, error) {
	j := f.job(c, name)
	j.Work = &workload.Open{RandRead: f.reads(c, pair)}
	return j, nil
}

// check adds a note if cached reads went to the device.
func (openClose) check(f *fileRun, c cell, name string, s measure.Sample) {
	randRead{}.check(f, c, name, s)
}
