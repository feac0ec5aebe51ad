// SPDX-License-Identifier: MIT

//go:build unix && !solaris && !aix

package backup

import (
	"io"
	"os"
	"syscall"
)

// lockDir locks a directory until it is closed, or the process ends. The error is one if another process has the lock.
func lockDir(dir string) (io.Closer, error) {
	f, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
