// SPDX-License-Identifier: MIT

package suite

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// States of the page cache in which a file is read.
const (
	CacheHot    = "hot"
	CacheDirect = "direct"
)

// maxBlock bounds what one read may ask for, maxGoroutines how many there are.
const (
	maxBlock      = 64 << 20
	maxGoroutines = 1 << 16
)

// FileOptions say what the suite "file" measures. The zero value is the default run.
type FileOptions struct {
	// Path is an existing file to read, which is never changed. If empty, a file is created in
	// Dir and removed afterwards; an empty Dir is one chosen by [DefaultDir].
	Path, Dir string
	// Size is the length of the file to create; 0 stands for 1 GiB, or 256 MiB if all of it
	// fits into the page cache anyway.
	Size int64
	// Blocks, Goroutines and Caches replace an axis of the grid.
	Blocks     []int
	Goroutines []int
	Caches     []string
	// Full measures every block at every number of goroutines, Brief only a few cells.
	Full, Brief bool
	// Pairs is the number of interleaved rounds of each engine (0: 5), Duration the length of
	// a measured window (0: 200 ms).
	Pairs    int
	Duration time.Duration
	// Seed selects content and offsets.
	Seed uint64
	// Fio adds the fio program as an engine where O_DIRECT is used.
	Fio bool
}

// cell is one point of the grid. What a workload has no use for stays zero.
type cell struct {
	// workload is the name of a fileWorkload, storage of a store.
	workload, storage string
	cache             string
	goroutines        int
	block             int
	// more holds further parameters by their names in result files.
	more report.Params
}

// String names the cell in errors and beside the progress bar.
func (c cell) String() string {
	words := []string{c.workload}
	if c.storage != StorageDisk {
		words = append(words, c.storage)
	}
	if c.cache != "" {
		words = append(words, c.cache)
	}
	out := strings.Join(words, " ")
	if c.goroutines > 0 {
		out += fmt.Sprintf(", %d goroutines", c.goroutines)
	}
	if c.block > 0 {
		out += fmt.Sprintf(", block %d", c.block)
	}
	for _, key := range slices.Sorted(maps.Keys(c.more)) {
		out += fmt.Sprintf(", %s %v", key, c.more[key])
	}
	return out
}

// Validate returns an error that names the first option that makes no sense.
func (o FileOptions) Validate() error {
	if o.Path != "" && (o.Dir != "" || o.Size != 0) {
		return fmt.Errorf("--path reads an existing file: --dir and --size do not apply to it")
	}
	if o.Full && o.Brief {
		return fmt.Errorf("a run cannot be full and brief")
	}
	if o.Size != 0 && (o.Size < minSize || o.Size%datafile.UnitSize != 0) {
		return fmt.Errorf("--size must be a multiple of %d and at least %d", datafile.UnitSize, minSize)
	}
	for _, b := range o.Blocks {
		if b <= 0 || b > maxBlock || b%datafile.UnitSize != 0 {
			return fmt.Errorf("--block %d: must be a multiple of %d up to %d", b, datafile.UnitSize, maxBlock)
		}
	}
	for _, g := range o.Goroutines {
		if g < 1 || g > maxGoroutines {
			return fmt.Errorf("--goroutines %d: must be between 1 and %d", g, maxGoroutines)
		}
	}
	for _, c := range o.Caches {
		if c != CacheHot && c != CacheDirect {
			return fmt.Errorf("--cache %q: must be %s or %s", c, CacheHot, CacheDirect)
		}
	}
	if o.Pairs < 0 || o.Duration < 0 {
		return fmt.Errorf("--pairs and --duration must be positive")
	}
	return nil
}

// minSize is the smallest file worth reading at random.
const minSize = 16 * datafile.UnitSize

// withDefaults fills in what was left open.
func (o FileOptions) withDefaults() FileOptions {
	if o.Pairs == 0 {
		o.Pairs = 5
	}
	if o.Duration == 0 {
		o.Duration = 200 * time.Millisecond
	}
	if len(o.Caches) == 0 {
		o.Caches = []string{CacheHot, CacheDirect}
	}
	if o.Path == "" && o.Dir == "" {
		o.Dir = DefaultDir()
	}
	if o.Size == 0 {
		o.Size = hotSpan
		if slices.Contains(o.Caches, CacheDirect) {
			o.Size = directSize
		}
	}
	return o
}

// warm is how long operations run before each measured window.
func (o FileOptions) warm() time.Duration { return warmFor(o.Duration) }

func warmFor(window time.Duration) time.Duration {
	return min(max(window/3, time.Millisecond), 500*time.Millisecond)
}

var (
	allBlocks    = []int{4 << 10, 8 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
	fewBlocks    = []int{4 << 10, 64 << 10}
	briefBlocks  = []int{4 << 10, 64 << 10, 1 << 20}
	defaultDepth = []int{1, 128}
)

// cells returns the grid of all workloads.
func (o FileOptions) cells() []cell {
	var out []cell
	for _, w := range fileWorkloads {
		out = append(out, w.cells(o)...)
	}
	return out
}

// randReadCells returns the grid of random reads. By default one goroutine reads only two block sizes: it is the regime
// where nothing can be batched, and two sizes show that. Axes given by the user are taken as they
// are; a given number of goroutines brings all block sizes with it.
func (o FileOptions) randReadCells() []cell {
	depths := o.Goroutines
	if len(depths) == 0 {
		depths = defaultDepth
	}
	var out []cell
	for _, cache := range o.Caches {
		for _, g := range depths {
			for _, block := range o.blocksFor(g) {
				out = append(out, cell{workload: nameRandRead, storage: StorageDisk, cache: cache, goroutines: g, block: block})
			}
		}
	}
	return out
}

func (o FileOptions) blocksFor(goroutines int) []int {
	switch {
	case len(o.Blocks) > 0:
		return o.Blocks
	case o.Full, len(o.Goroutines) > 0:
		return allBlocks
	case goroutines == 1 && o.Brief:
		return allBlocks[:1]
	case goroutines == 1:
		return fewBlocks
	case o.Brief:
		return briefBlocks
	}
	return allBlocks
}
