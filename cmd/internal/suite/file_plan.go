// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// These are the states of the page cache in which a file is read.
const (
	CacheHot    = "hot"
	CacheDirect = "direct"
	CacheCold   = "cold"
)

// maxBlock limits the size of a read, maxGoroutines the number of goroutines.
const (
	maxBlock      = 64 << 20
	maxGoroutines = 1 << 16
)

// FileOptions are the options of the suite "file". The zero value is the default run.
type FileOptions struct {
	// Path is an existing file to read, which is never changed. If it is empty, a file is created
	// in Dir and removed afterwards. If Dir is empty too, [DefaultDir] chooses it.
	Path, Dir string
	// Size is the length of the created file. 0 means 1 GiB, or 256 MiB if only cached reads are
	// measured.
	Size int64
	// Workloads, Blocks, Goroutines and Caches replace an axis of the grid.
	Workloads  []string
	Blocks     []int
	Goroutines []int
	// Records are the sizes of appended records.
	Records []int
	Caches  []string
	// Full measures every block size at every number of goroutines. Brief measures only a few
	// cells.
	Full, Brief bool
	Timing
	// Seed selects content and offsets.
	Seed uint64
	// Fast selects the storage in memory. NoFio leaves out fio, which otherwise is an engine of
	// cells with O_DIRECT.
	Fast  Fast
	NoFio bool
	// FioAlso adds variants of fio, such as [fio.NameFixed].
	FioAlso []string

	// cachesGiven reports whether the user set Caches.
	cachesGiven bool
}

// Fast selects the storage in memory. It is skipped if it is not available.
type Fast string

const (
	// FastAuto measures it in a full run.
	FastAuto Fast = ""
	// FastAdd measures it and the ordinary storage. FastOnly measures only it.
	FastAdd  Fast = "add"
	FastOnly Fast = "only"
	// FastNone does not measure it.
	FastNone Fast = "none"
)

// Validate returns an error that names the first option that is not valid.
func (o FileOptions) Validate() error {
	if o.Path != "" && (o.Dir != "" || o.Size != 0) {
		return fmt.Errorf("--path %s: is an existing file: leave out --dir and --size, which are for a new one", o.Path)
	}
	if o.Full && o.Brief {
		return fmt.Errorf("the options Full and Brief are both set: set one of them")
	}
	if o.Path != "" && o.Fast == FastOnly {
		return fmt.Errorf("--path %s: is not measured with --fast=only: leave out one of them", o.Path)
	}
	var size []int
	if o.Size != 0 {
		size = []int{int(o.Size)}
	}
	var fast []string
	if o.Fast != FastAuto {
		fast = []string{string(o.Fast)}
	}
	words := FileWords()
	return cmp.Or(words.check("workload", o.Workloads), words.check("cache", o.Caches),
		words.check("fast", fast), words.check("fio-also", o.FioAlso), between("size", size, minSize, math.MaxInt, datafile.UnitSize),
		sizeBetween("block", o.Blocks, datafile.UnitSize, maxBlock),
		between("record", o.Records, 24, 1<<20, 1), between("goroutines", o.Goroutines, 1, maxGoroutines, 1), o.validate())
}

// minSize is the smallest file for random reads.
const minSize = 16 * datafile.UnitSize

// withDefaults sets the options that are zero.
func (o FileOptions) withDefaults() FileOptions {
	o.setDefaults()
	if o.cachesGiven = o.cachesGiven || len(o.Caches) > 0; !o.cachesGiven {
		o.Caches = []string{CacheHot, CacheDirect, CacheCold}
	}
	if o.Path == "" && o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if o.Fast == FastAuto {
		o.Fast = FastNone
		if o.Full {
			o.Fast = FastAdd
		}
	}
	if o.Size == 0 {
		o.Size = directSize
		switch {
		case slices.Equal(o.Workloads, []string{nameAppend}): // has files of its own
			o.Size = datafile.MinSize
		case slices.Equal(o.Caches, []string{CacheHot}):
			o.Size = hotSpan
		}
	}
	return o
}

// Space returns the directory in which the run creates files, and the number of bytes that it needs
// there at least; "" if it creates none.
func (o FileOptions) Space() (dir string, bytes int64) {
	o = o.withDefaults()
	if o.Path != "" || o.Fast == FastOnly {
		return "", 0
	}
	bytes = min(o.Size, datafile.MinSize)
	for _, sharing := range [][]string{{nameRandWrite, nameSync}, {nameAppend}} {
		if slices.ContainsFunc(sharing, o.chosen) {
			bytes += min(o.Size, datafile.MinSize)
		}
	}
	if o.wantsPebble() && ycsb.Known() {
		bytes += ycsb.Space
	}
	return o.Dir, bytes
}

// warm returns the warm-up before each measured window.
func (o FileOptions) warm() time.Duration { return warmFor(o.Duration) }

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

// chosen reports whether the options select the workload. If the user sets an axis but names no
// workloads, only the random reads are selected.
func (o FileOptions) chosen(workload string) bool {
	switch {
	case len(o.Workloads) > 0:
		return slices.Contains(o.Workloads, workload)
	case len(o.Blocks)+len(o.Goroutines) > 0, o.cachesGiven:
		return workload == nameRandRead
	}
	return true
}

// wants reports whether this state of the page cache is to be measured.
func (o FileOptions) wants(cache string) bool { return slices.Contains(o.Caches, cache) }

// blocksOr returns the block sizes that the user gave, else the workload's own.
func (o FileOptions) blocksOr(own ...int) []int { return orOwn(o.Blocks, own) }

// goroutinesOr returns the numbers of goroutines that the user gave, else the workload's own.
func (o FileOptions) goroutinesOr(own ...int) []int { return orOwn(o.Goroutines, own) }

func orOwn(given, own []int) []int {
	if len(given) > 0 {
		return given
	}
	return own
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
