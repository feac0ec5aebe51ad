// SPDX-License-Identifier: MIT

//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package datafile

import (
	"errors"
	"os"
	"runtime"
)

// lock does nothing. The system protects open files (Windows), or files are never swept.
func lock(*os.File) error { return nil }

// sweepOne deletes the file. Windows refuses while the owner has it open.
func sweepOne(path string) error {
	if runtime.GOOS != "windows" {
		return errors.ErrUnsupported
	}
	return os.Remove(path)
}
