// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
)

// States of the page cache in which a file is read.
const (
	CacheHot    = "hot"
	CacheDirect = "direct"
	CacheCold   = "cold"
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
	// Workloads, Blocks, Goroutines and Caches replace an axis of the grid.
	Workloads  []string
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
	// Fast reports whether the storage in memory is measured, Fio whether the fio program is an
	// engine where O_DIRECT is used.
	Fast Fast
	Fio  Choice
	// FioAlso are further ways of fio to read, such as [fio.NameFixed].
	FioAlso []string

	// cachesGiven tells that Caches is not the default.
	cachesGiven bool
}

// Choice reports whether a part that needs something to be installed is wanted.
type Choice int

const (
	// Auto is yes where it can be had; else it is skipped.
	Auto Choice = iota
	// Always is yes; that it cannot be had is an error.
	Always
	// Never is no.
	Never
)

// Fast reports whether the storage in memory is measured. Where it cannot be had it is skipped.
type Fast string

const (
	// FastAuto is yes in a full run.
	FastAuto Fast = ""
	// FastAdd is yes, beside the ordinary storage; FastOnly instead of it.
	FastAdd  Fast = "add"
	FastOnly Fast = "only"
	// FastNone is no.
	FastNone Fast = "none"
)

// Validate returns an error that names the first option that makes no sense.
func (o FileOptions) Validate() error {
	if o.Path != "" && (o.Dir != "" || o.Size != 0) {
		return fmt.Errorf("--path reads an existing file: --dir and --size do not apply to it")
	}
	if o.Full && o.Brief {
		return fmt.Errorf("a run cannot be full and brief")
	}
	if o.Path != "" && o.Fast == FastOnly {
		return fmt.Errorf("--fast=only measures a storage of its own: --path does not apply to it")
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
	if err := o.validateNames(); err != nil {
		return err
	}
	if o.Pairs < 0 || o.Duration < 0 {
		return fmt.Errorf("--pairs and --duration must be positive")
	}
	return nil
}

// validateNames returns an error that names the first word that is not known.
func (o FileOptions) validateNames() error {
	var fast []string
	if o.Fast != FastAuto {
		fast = []string{string(o.Fast)}
	}
	words := FileWords()
	return cmp.Or(words.check("workload", o.Workloads), words.check("cache", o.Caches),
		words.check("fast", fast), words.check("fio-also", o.FioAlso))
}

// orWords lists what may be given.
func orWords(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
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
		if slices.Equal(o.Caches, []string{CacheHot}) {
			o.Size = hotSpan
		}
	}
	return o
}

// warm is how long operations run before each measured window.
func (o FileOptions) warm() time.Duration { return warmFor(o.Duration) }

func warmFor(window time.Duration) time.Duration {
	return min(max(window/3, time.Millisecond), 500*time.Millisecond)
}
