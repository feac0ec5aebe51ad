// SPDX-License-Identifier: MIT

package engine

import (
	"os"
	"syscall"
)

// readFlags returns the flags that open a file for reading, past the page cache if direct is set.
func readFlags(_ string, direct bool) (int, error) {
	if direct {
		return os.O_RDONLY | syscall.O_DIRECT, nil
	}
	return os.O_RDONLY, nil
}

// datasync makes data and size of the file durable, not its time stamps.
func datasync(f *os.File, fd uintptr) error {
	for {
		err := syscall.Fdatasync(int(fd))
		if err == nil {
			return nil
		}
		if err != syscall.EINTR {
			return &os.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
		}
	}
}
