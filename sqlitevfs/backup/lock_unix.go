// SPDX-License-Identifier: MIT

//go:build unix && !solaris && !aix

package backup

import (
	"io"
	"os"
	"syscall"
)

// lockFile locks a file or directory until it is closed, or the process ends. The error is EAGAIN if another one has the lock.
func lockFile(name string) (io.Closer, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
