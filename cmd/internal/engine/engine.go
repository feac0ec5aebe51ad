// SPDX-License-Identifier: MIT

package engine

import (
	"errors"
	"fmt"
)

// Names of the engines, as they appear in tables and result files.
const (
	NameOS       = "os"
	NameRingside = "ringside"
)

// File is an open file that any number of goroutines may read at once.
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
	// Backend tells which mechanism the engine uses in this process, and why it was chosen.
	Backend() (name, reason string)
	// OpenRead opens the named file read-only. With direct set it is opened past the page
	// cache, and the error matches [errors.ErrUnsupported] on a system that has no O_DIRECT.
	OpenRead(name string, direct bool) (File, error)
}

// ErrUnknown is matched by the error of [Lookup] for a name that no engine has.
var ErrUnknown = errors.New("unknown engine")

// Lookup returns the engine with the given name, or an error that matches [ErrUnknown].
func Lookup(name string) (Engine, error) {
	for _, e := range []Engine{OS{}, OSEach{}, Ringside{}} {
		if e.Name() == name {
			return e, nil
		}
	}
	return nil, fmt.Errorf("%w %q", ErrUnknown, name)
}
