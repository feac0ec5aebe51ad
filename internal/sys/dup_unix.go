// SPDX-License-Identifier: MIT

//go:build unix

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// Dup duplicates a descriptor, with close-on-exec set.
func Dup(fd int) (int, error) {
	if Faulty {
		if _, errno := faulty("dup", 1); errno != 0 {
			return -1, Error("dup", errno)
		}
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return -1, Error("dup", err.(syscall.Errno))
	}
	return n, nil
}
