// SPDX-License-Identifier: MIT

//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package sys

import (
	"os"
	"syscall"
)

// TryLock locks a file against other openings of it, in this process and in
// others, until it is closed (flock(2)). It reports false when somebody else
// holds the lock.
func TryLock(f *os.File) (bool, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return false, err
	}
	var lockErr error
	err = conn.Control(func(fd uintptr) {
		for {
			lockErr = syscall.Flock(int(fd), syscall.LOCK_EX|syscall.LOCK_NB)
			if lockErr != syscall.EINTR {
				return
			}
		}
	})
	if err != nil {
		return false, err
	}
	if lockErr == syscall.EWOULDBLOCK {
		return false, nil
	}
	return lockErr == nil, lockErr
}
