// SPDX-License-Identifier: MIT

//go:build !linux

package engine

import (
	"errors"
	"os"
)

// readFlags returns the flags that open a file for reading; O_DIRECT exists on Linux only.
func readFlags(name string, direct bool) (int, error) {
	if direct {
		return 0, &os.PathError{Op: "open O_DIRECT", Path: name, Err: errors.ErrUnsupported}
	}
	return os.O_RDONLY, nil
}

// datasync makes the file durable by [os.File.Sync].
func datasync(f *os.File, _ uintptr) error { return f.Sync() }
