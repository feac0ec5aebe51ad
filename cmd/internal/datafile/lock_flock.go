// SPDX-License-Identifier: MIT

//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package datafile

import (
	"errors"
	"os"
	"syscall"
)

// lock takes the file's exclusive lock without waiting. The kernel releases it when the process
// ends, even if it is killed.
func lock(f *os.File) error {
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case errors.Is(err, syscall.EWOULDBLOCK):
			return errLocked
		}
		return err
	}
}

// sweepOne deletes the file if its lock is free. It holds the lock during the deletion, so a
// process that has just created the file sees that the name is gone.
func sweepOne(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := lock(f); err != nil {
		return err
	}
	if !stillNamed(f, path) {
		return os.ErrNotExist
	}
	return os.Remove(path)
}
