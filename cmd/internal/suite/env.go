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
	// ProbeDirect tells whether the file can be read with O_DIRECT.
	ProbeDirect func(path string) error
	// FindFio returns the program's path, Fio runs a round with it.
	FindFio func() (string, error)
	Fio     func(ctx context.Context, program string, job fio.RandRead) (measure.Sample, error)
	// AvailableMemory returns the bytes that buffers and cache may take, 0 if nobody knows.
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

// ErrNothing is returned when every part of a run was skipped. The report names the reasons.
var ErrNothing = errors.New("nothing could be measured")
