// SPDX-License-Identifier: MIT

package engine

import (
	"os"

	"github.com/ringside-io/ringside/ufile"
)

// WriteFile is an open file that any number of goroutines may read and write at once.
type WriteFile interface {
	File
	// WriteAt is [io.WriterAt]. The buffer belongs to the call until it returns.
	WriteAt(p []byte, off int64) (int, error)
	// Sync makes what was written durable.
	Sync() error
}

// Writer is an engine that overwrites files.
type Writer interface {
	// OpenWrite opens an existing file for reading and writing; direct is as of [Engine].
	OpenWrite(name string, direct bool) (WriteFile, error)
}

// OpenWrite opens the file with [os.OpenFile].
func (OS) OpenWrite(name string, direct bool) (WriteFile, error) {
	flag, err := readFlags(name, direct)
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(name, flag|os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// OpenWrite opens the file with [ufile.OpenFile].
func (Ringside) OpenWrite(name string, direct bool) (WriteFile, error) {
	flag, err := readFlags(name, direct)
	if err != nil {
		return nil, err
	}
	f, err := ufile.OpenFile(name, flag|os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}
