// SPDX-License-Identifier: MIT

package suite

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

const (
	nameBatch = "batch"
	// paramCount is the number of reads of one call.
	paramCount = "count"
)

// batch lets one goroutine read many blocks by one call: an errgroup of os reads beside
// ufile.Batch.
type batch struct{ bothEngines }

func (batch) name() string { return nameBatch }

func (batch) cells(o FileOptions) []cell {
	var out []cell
	for _, storage := range o.storages() {
		for _, cache := range []string{CacheDirect, CacheHot} {
			if !o.wants(cache) || cache == CacheHot && storage == StorageFast {
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

// batchCounts leaves the small batch out where nothing waits for a device: there it is as the large
// one.
func batchCounts(o FileOptions, cache string) []int {
	if o.Full || cache == CacheDirect && !o.Brief {
		return []int{16, 128}
	}
	return []int{128}
}

func (c cell) count() int { return c.more[paramCount].(int) }

// impossible names what file or memory cannot carry.
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

// round runs one engine once. All engines of a pair read the same offsets, except that fio has a
// sequence of its own.
func (batch) round(ctx context.Context, f *fileRun, c cell, name string, pair int) (measure.Sample, error) {
	if isFio(name) {
		return f.fioRound(ctx, c, name, c.count(), pair)
	}
	j := f.job(c, name)
	j.Batch = &workload.Batch{RandRead: f.reads(c, pair), Count: c.count()}
	return f.env.Round(ctx, j)
}

// check notes when a read that should have met the cache went to the device.
func (batch) check(f *fileRun, c cell, name string, s measure.Sample) {
	randRead{}.check(f, c, name, s)
}
