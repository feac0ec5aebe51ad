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
	"github.com/ringside-io/ringside/cmd/internal/peers/ycsb"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
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

// sizeBetween returns an error, in the units of the flag, if a size is out of bounds or not a multiple
// of the lower bound.
func sizeBetween(flag string, values []int, low, high int) error {
	for _, v := range values {
		if v < low || v > high || v%low != 0 {
			return fmt.Errorf("--%s %s: must be a multiple of %s, up to %s", flag, report.FormatBytes(int64(v)), report.FormatBytes(int64(low)), report.FormatBytes(int64(high)))
		}
	}
	return nil
}

// orWords joins words for a sentence.
func orWords(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
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

// impossible reports whether the cell cannot be measured here, and notes the reason.
func (f *fileRun) impossible(c cell) bool {
	reason := workloadOf(c).impossible(f, c)
	if reason != "" {
		s := report.Skip{Workload: c.workload, Params: f.params(c), Reason: reason}
		if reason == ycsb.ErrMissing.Error() {
			s.Params = nil // this build has no cell of the workload
		}
		f.skip(s)
	}
	return reason != ""
}

// Workers runs jobs, each in a process of its own.
type Workers struct {
	// Round runs a job.
	Round func(context.Context, workload.Job) (measure.Sample, error)
	// Open starts a job that takes turns. If it is nil, every cell is measured in rounds.
	Open func(context.Context, workload.Job) (measure.Player, error)
}

// opener returns the function that starts the job of an engine for turns, or nil if no job takes turns.
func (w Workers) opener(job func(name string, pair int) (workload.Job, error)) func(context.Context, string, int) (measure.Player, error) {
	if w.Open == nil {
		return nil
	}
	return func(ctx context.Context, name string, pair int) (measure.Player, error) {
		j, err := job(name, pair)
		if err != nil {
			return nil, err
		}
		j.Turning = true
		return w.Open(ctx, j)
	}
}

// Env connects a suite to the system. All functions must be set. Maker may be its zero value.
type Env struct {
	Workers
	// Maker creates the file.
	Maker datafile.Maker
	// ProbeDirect returns an error if the file cannot be read with O_DIRECT.
	ProbeDirect func(path string) error
	// ProbeEvict returns an error if the file cannot be evicted from the page cache. The error then
	// matches [datafile.ErrCached].
	ProbeEvict func(path string) error
	// FastDevice creates a storage in memory for size bytes. If that is not possible, the error
	// matches [fastdev.ErrUnavailable].
	FastDevice func(ctx context.Context, size int64) (FastDevice, error)
	// FindFio returns the program's path. Fio runs a round with it; the sample's backend is the
	// program's version.
	FindFio func() (string, error)
	Fio     func(ctx context.Context, program string, job fio.RandRead) (measure.Sample, error)
	// AvailableMemory returns the bytes that buffers and cache may use, or 0 if unknown.
	AvailableMemory func() int64
	// Pebble reports whether this build has pebble.
	Pebble bool
	// Progress shows the progress of the run.
	Progress Progress
}

// Progress shows the progress of a run.
type Progress interface {
	// Start begins a task of total steps. Add counts n of them as done.
	Start(total int64, note string)
	Add(n int64)
	// Until sets when the run ends, if that is known.
	Until(end time.Time)
	// Note changes the text next to the bar.
	Note(format string, args ...any)
}

// FastDevice is a mounted file system in memory.
type FastDevice interface {
	// Dir returns the root directory. Filesystem returns the name of the file system, and Note the
	// reason if it is not the usual one.
	Dir() string
	Filesystem() string
	Note() string
	// Close removes the storage.
	Close() error
}

// ErrNothing is returned when every part of a run was skipped. The report has the reasons.
var ErrNothing = errors.New("nothing could be measured")

// DefaultDir returns the default directory for test files: TMPDIR if that is set, or else /var/tmp,
// which unlike /tmp is usually not in memory.
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
