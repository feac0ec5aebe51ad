// SPDX-License-Identifier: MIT

package suite

import (
	"slices"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// cell is one point of the grid. Fields that a workload does not use are zero.
type cell struct {
	// workload is the name of a fileWorkload, storage of a store.
	workload, storage string
	cache             string
	goroutines        int
	block             int
	// more holds further parameters by their names in result files.
	more report.Params
}

// cells returns the grid of the selected workloads.
func (o FileOptions) cells() []cell {
	var out []cell
	for _, w := range fileWorkloads {
		if o.chosen(w.name()) {
			out = append(out, w.cells(o)...)
		}
	}
	return out
}

// storages returns the storages of the grid.
func (o FileOptions) storages() []string {
	switch o.Fast {
	case FastAdd:
		return []string{StorageDisk, StorageFast}
	case FastOnly:
		return []string{StorageFast}
	}
	return []string{StorageDisk}
}

// part is a rectangle of the grid: each block size with each number of goroutines.
type part struct {
	cache              string
	goroutines, blocks []int
}

// minBlock is the smallest read that O_DIRECT allows everywhere.
const minBlock = k4

const (
	k4, k16, k64 = 4 << 10, 16 << 10, 64 << 10
	m1           = 1 << 20
)

var (
	allBlocks  = []int{k4, 8 << 10, k16, k64, 256 << 10, m1}
	allDepths  = []int{1, 8, 32, 128, 512}
	coldBlocks = []int{k4, k64}
	coldDepths = []int{1, 32, 64, 128}
)

// These are the grids of random reads. The default grid has each case once or twice: one reader,
// with nothing to batch; few readers; many; more than a device handles at once; large blocks.
var (
	defaultGrid = []part{
		{CacheHot, []int{1}, []int{k4}},
		{CacheHot, []int{128}, []int{k4, k64, m1}},
		{CacheDirect, []int{1, 32}, []int{k4}},
		{CacheDirect, []int{128}, []int{k4, k64}},
		{CacheDirect, []int{512}, []int{k4}},
		{CacheCold, []int{32}, []int{k4, k64}},
		{CacheCold, []int{128}, []int{k4}},
	}
	briefGrid = []part{
		{CacheHot, []int{128}, []int{k4}},
		{CacheDirect, []int{128}, []int{k4}},
		{CacheCold, []int{32}, []int{k4}},
	}
	fullGrid = []part{
		{CacheHot, allDepths, allBlocks},
		{CacheDirect, allDepths, allBlocks},
		{CacheCold, coldDepths, coldBlocks},
	}
	// The storage in memory shows the overhead of the software.
	fastGrid     = []part{{CacheDirect, []int{1, 32, 128, 512}, []int{k4}}}
	fastFullGrid = []part{{CacheDirect, allDepths, []int{k4, k16, k64}}}
)

// randReadCells returns the grid of random reads.
func (o FileOptions) randReadCells() []cell {
	var out []cell
	for _, storage := range o.storages() {
		for _, p := range o.parts(storage) {
			for _, g := range p.goroutines {
				for _, block := range p.blocks {
					out = append(out, cell{workload: nameRandRead, storage: storage, cache: p.cache, goroutines: g, block: block})
				}
			}
		}
	}
	return out
}

// parts returns the grid of one storage. Axes given by the user replace the defaults.
func (o FileOptions) parts(storage string) []part {
	var grid []part
	switch fast := storage == StorageFast; {
	case fast && o.cachesGiven, o.Full && !fast:
		grid = fullGrid
	case fast && o.Full:
		grid = fastFullGrid
	case fast:
		grid = fastGrid
	case o.Brief:
		grid = briefGrid
	default:
		grid = defaultGrid
	}
	if len(o.Blocks)+len(o.Goroutines) > 0 {
		grid = o.crossed(grid)
	}
	return slices.DeleteFunc(slices.Clone(grid), func(p part) bool {
		return !slices.Contains(o.Caches, p.cache)
	})
}

// crossed makes one part for each cache state in the grid, with the axes that the user gave. If the
// user gives a number of goroutines, all block sizes are measured.
func (o FileOptions) crossed(grid []part) []part {
	var out []part
	for _, p := range grid {
		if slices.ContainsFunc(out, func(q part) bool { return q.cache == p.cache }) {
			continue
		}
		q := part{p.cache, []int{1, 128}, allBlocks}
		if p.cache == CacheCold {
			q = part{p.cache, []int{32, 128}, coldBlocks}
		}
		if o.Full {
			i := slices.IndexFunc(fullGrid, func(f part) bool { return f.cache == p.cache })
			q = fullGrid[i]
		}
		if len(o.Goroutines) > 0 {
			q.goroutines = o.Goroutines
		}
		if len(o.Blocks) > 0 {
			q.blocks = o.Blocks
		}
		out = append(out, q)
	}
	return out
}
