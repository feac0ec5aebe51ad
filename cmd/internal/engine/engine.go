// SPDX-License-Identifier: MIT

// Package engine defines the ways in which a workload can access a file: the standard library
// ("os") and ringside. A workload is written once against [Engine] and [File], so compared
// measurements differ only in the engine.
package engine

import (
	"errors"
	"fmt"
	"os"

	"github.com/ringside-io/ringside/ufile"
)

// These are the names of the engines in tables and result files.
const (
	NameOS       = "os"
	NameRingside = "ringside"
	// NameRing is ringside with io_uring for every call instead of the automatic choice. It overwrites
	// files.
	NameRing = "ringside-ring"
	// NameBuffers is ringside with the memory of a [ufile.Buffers]. It reads with O_DIRECT.
	NameBuffers = "ringside-buffers"
)

// File is an open file. Any number of goroutines may read it at once.
type File interface {
	// ReadAt is [io.ReaderAt]. The buffer belongs to the call until it returns.
	ReadAt(p []byte, off int64) (int, error)
	// Close releases the file. No call may be in flight.
	Close() error
}

// Engine opens files in one particular way. Its methods may be called concurrently.
type Engine interface {
	// Name is the engine's name in tables and result files.
	Name() string
	// Backend returns the mechanism that the engine uses in this process, and the reason for the
	// choice.
	Backend() (name, reason string)
	// OpenRead opens the named file read-only. With direct it uses O_DIRECT; on a system without
	// O_DIRECT the error matches [errors.ErrUnsupported].
	OpenRead(name string, direct bool) (File, error)
}

// ErrUnknown is matched by the error of [Lookup] for an unknown name.
var ErrUnknown = errors.New("unknown engine")

// Lookup returns the engine with the given name, or an error that matches [ErrUnknown].
func Lookup(name string) (Engine, error) {
	for _, e := range []Engine{OS{}, OSMutex{}, Ringside{}, Ring{}, Buffers{}} {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w %q", ErrUnknown, name)
}

// OS reads through [os.File]. It is the baseline.
type OS struct{}

// Name returns "os".
func (OS) Name() string { return NameOS }

// Backend returns "plain": each read is one blocking system call.
func (OS) Backend() (name, reason string) { return "plain", "os.File" }

// OpenRead opens the file with [os.OpenFile].
func (OS) OpenRead(name string, direct bool) (File, error) { return open(os.OpenFile, name, 0, direct) }

// open opens a file with the flags for direct. After a failure the interface is nil and does not
// hold a nil pointer.
func open[F File](with func(string, int, os.FileMode) (F, error), name string, flag int, direct bool) (File, error) {
	more, err := readFlags(name, direct)
	if err != nil {
		return nil, err
	}
	f, err := with(name, flag|more, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// Ringside reads through [ufile.File], which uses io_uring if it is available and plain system
// calls otherwise.
type Ringside struct{}

// Name returns "ringside".
func (Ringside) Name() string { return NameRingside }

// Backend returns the backend that ufile chose for this process.
func (Ringside) Backend() (name, reason string) {
	name, reason = ufile.Backend()
	if reason == "" {
		reason = "the kernel has what ufile needs and lets this process use it"
	}
	return name, reason
}

// OpenRead opens the file with [ufile.OpenFile].
func (Ringside) OpenRead(name string, direct bool) (File, error) {
	return open(ufile.OpenFile, name, 0, direct)
}

// WriteFile is an open file. Any number of goroutines may read and write it at once.
type WriteFile interface {
	File
	// WriteAt is [io.WriterAt]. The buffer belongs to the call until it returns.
	WriteAt(p []byte, off int64) (int, error)
	// Sync makes written data durable.
	Sync() error
	// Datasync is Sync, except that the times of the file need not be durable.
	Datasync() error
}

// Writer is an engine that overwrites files.
type Writer interface {
	// OpenWrite opens an existing file for reading and writing. For direct see [Engine].
	OpenWrite(name string, direct bool) (WriteFile, error)
}

// OpenWrite opens the file with [os.OpenFile].
func (OS) OpenWrite(name string, direct bool) (WriteFile, error) {
	f, err := open(os.OpenFile, name, os.O_RDWR, direct)
	if err != nil {
		return nil, err
	}
	file := f.(*os.File)
	return osFile{file, file.Fd()}, nil
}

// osFile is an os.File with the call of [ufile.File] that os lacks.
type osFile struct {
	*os.File
	fd uintptr
}

func (f osFile) Datasync() error { return datasync(f.File, f.fd) }

// OpenWrite opens the file with [ufile.OpenFile].
func (Ringside) OpenWrite(name string, direct bool) (WriteFile, error) {
	f, err := open(ufile.OpenFile, name, os.O_RDWR, direct)
	if err != nil {
		return nil, err
	}
	return f.(*ufile.File), nil
}

// Ring is [Ringside] with [ufile.ModeRing]: each call is an operation of io_uring.
type Ring struct{ Ringside }

// Name returns "ringside-ring".
func (Ring) Name() string { return NameRing }

// OpenWrite opens the file with a [ufile.System] of its own.
func (Ring) OpenWrite(name string, direct bool) (WriteFile, error) {
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	if err != nil {
		return nil, err
	}
	f, err := open(s.OpenFile, name, os.O_RDWR, direct)
	if err != nil {
		return nil, err
	}
	return f.(*ufile.File), nil
}

// Pooler is an engine that has a pool of buffers for reads.
type Pooler interface {
	// NewBuffers returns a pool of count buffers of size bytes.
	NewBuffers(count, size int) (*ufile.Buffers, error)
}

// Buffers is [Ringside] with a pool of registered buffers.
type Buffers struct{ Ringside }

// Name returns "ringside-buffers".
func (Buffers) Name() string { return NameBuffers }

// NewBuffers implements [Pooler].
func (Buffers) NewBuffers(count, size int) (*ufile.Buffers, error) {
	return ufile.NewBuffers(count, size)
}
