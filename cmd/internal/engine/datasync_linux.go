// SPDX-License-Identifier: MIT

package engine

import (
	"os"
	"syscall"
)

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
