// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/fio"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

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
	// Progress is told how far the run is.
	Progress Progress
}

// Progress shows the user how far a run is.
type Progress interface {
	// Start begins a task of total steps; Add says that n of them are done.
	Start(total int64, note string)
	Add(n int64)
	// Note changes the words beside the bar.
	Note(format string, args ...any)
}

// FastDevice is a mounted file system in memory.
type FastDevice interface {
	// Dir takes files, Filesystem names what lies there, Note says why it is not the usual one.
	Dir() string
	Filesystem() string
	Note() string
	// Close removes all of it.
	Close() error
}

// ErrNothing is returned when every part of a run was skipped. The report names the reasons.
var ErrNothing = errors.New("nothing could be measured")
