// SPDX-License-Identifier: MIT

package suite

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
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

// FileOptions are the options of the suite "file". The zero value is the default run.
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
	Timing
	// Seed selects content and offsets.
	Seed uint64
	// Fast reports whether the storage in memory is measured. NoFio leaves out the program fio, which
	// otherwise is an engine where O_DIRECT is used.
	Fast  Fast
	NoFio bool
	// FioAlso are further ways of fio to read, such as [fio.NameFixed].
	FioAlso []string

	// cachesGiven reports whether Caches is not the default.
	cachesGiven bool
}

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

// Validate returns an error that names the first option that is not valid.
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
		between("block", o.Blocks, datafile.UnitSize, maxBlock, datafile.UnitSize),
		between("goroutines", o.Goroutines, 1, maxGoroutines, 1), o.validate())
}

// orWords joins words for a sentence.
func orWords(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}

// minSize is the smallest file worth reading at random.
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
		if slices.Equal(o.Caches, []string{CacheHot}) {
			o.Size = hotSpan
		}
	}
	return o
}

// Space returns where the run makes files, and how many bytes it needs there at least; "" where it
// makes none.
func (o FileOptions) Space() (dir string, bytes int64) {
	o = o.withDefaults()
	if o.Path != "" || o.Fast == FastOnly {
		return "", 0
	}
	bytes = min(o.Size, datafile.MinSize)
	for _, w := range []string{nameRandWrite, nameAppend} {
		if o.chosen(w) {
			bytes += min(o.Size, datafile.MinSize)
		}
	}
	return o.Dir, bytes
}

// warm is how long operations run before each measured window.
func (o FileOptions) warm() time.Duration { return warmFor(o.Duration) }

func warmFor(window time.Duration) time.Duration {
	return min(max(window/3, time.Millisecond), 500*time.Millisecond)
}

// possible returns the cells that can be measured here, and notes the others as skipped.
func (f *fileRun) possible() ([]cell, error) {
	cells := slices.DeleteFunc(f.opts.cells(), func(c cell) bool { return f.stores[c.storage] == nil })
	for _, storage := range f.opts.storages() {
		for _, probe := range []struct {
			cache    string
			try      func(path string) error
			cannot   error
			question string
		}{
			{CacheDirect, f.env.ProbeDirect, workload.ErrNoDirect, "try O_DIRECT"},
			{CacheCold, f.env.ProbeEvict, datafile.ErrCached, "try to evict the file"},
		} {
			here := func(c cell) bool { return c.cache == probe.cache && c.storage == storage }
			if !slices.ContainsFunc(cells, here) {
				continue
			}
			err := probe.try(f.stores[storage].path)
			if err != nil && !errors.Is(err, probe.cannot) {
				return nil, fmt.Errorf("%s: %w", probe.question, err)
			}
			if err != nil {
				f.skipCache(cell{storage: storage, cache: probe.cache}, err)
				cells = slices.DeleteFunc(cells, here)
			}
		}
	}
	return slices.DeleteFunc(cells, f.impossible), nil
}

// skipCache notes that all cells with one state of the cache on one storage are left out.
func (f *fileRun) skipCache(c cell, err error) {
	p := report.Params{"cache": c.cache}
	if c.storage != StorageDisk {
		p["storage"] = c.storage
	}
	f.skip(report.Skip{Params: p, Reason: fmt.Sprintf("%v; choose a directory on a disk with --dir", err)})
}

// impossible notes and reports a cell that its workload cannot measure here.
func (f *fileRun) impossible(c cell) bool {
	reason := workloadOf(c).impossible(f, c)
	if reason != "" {
		f.skip(report.Skip{Workload: c.workload, Params: f.params(c), Reason: reason})
	}
	return reason != ""
}

// Env is how a suite reaches the world. All functions must be set, except that Maker's zero value
// works.
type Env struct {
	// Round runs one job, in a process of its own.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// Maker creates the file.
	Maker datafile.Maker
	// ProbeDirect reports whether the file can be read with O_DIRECT.
	ProbeDirect func(path string) error
	// ProbeEvict reports whether the file can be evicted from the page cache; if not, the error
	// matches [datafile.ErrCached].
	ProbeEvict func(path string) error
	// FastDevice makes a storage in memory for size bytes; where there can be none, the error
	// matches [fastdev.ErrUnavailable].
	FastDevice func(ctx context.Context, size int64) (FastDevice, error)
	// FindFio returns the program's path, Fio runs a round with it, whose backend is the
	// program's version.
	FindFio func() (string, error)
	Fio     func(ctx context.Context, program string, job fio.RandRead) (measure.Sample, error)
	// AvailableMemory returns the bytes that buffers and cache may take, 0 if unknown.
	AvailableMemory func() int64
	// Progress shows the progress of the run.
	Progress Progress
}

// Progress shows the user how far a run is.
type Progress interface {
	// Start begins a task of total steps; Add counts n of them as done.
	Start(total int64, note string)
	Add(n int64)
	// Note changes the words beside the bar.
	Note(format string, args ...any)
}

// FastDevice is a mounted file system in memory.
type FastDevice interface {
	// Dir is the root directory. Filesystem names the file system, Note why it is not the usual one.
	Dir() string
	Filesystem() string
	Note() string
	// Close removes all of it.
	Close() error
}

// ErrNothing is returned when every part of a run was skipped. The report names the reasons.
var ErrNothing = errors.New("nothing could be measured")

// DefaultDir returns where test files are created by default: in TMPDIR if that is
// set, else in /var/tmp, which unlike /tmp usually lies on a disk and not in memory.
func DefaultDir() string {
	if runtime.GOOS == "windows" || os.Getenv("TMPDIR") != "" {
		return os.TempDir()
	}
	const dir = "/var/tmp"
	if info, err := os.Stat(dir); err == nil && info.IsDir() {
		return dir
	}
	return os.TempDir()
}
