// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// EventFD opens an eventfd(2) that starts at 0 and blocks readers until
// [Signal].
func EventFD() (*FD, error) {
	if Faulty {
		if _, errno := faulty("eventfd", 1); errno != 0 {
			return nil, Error("eventfd", errno)
		}
	}
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		return nil, Error("eventfd", err.(syscall.Errno))
	}
	return NewFD(fd), nil
}

// Signal adds one to an eventfd, which ends a read of it. It does not block
// before 2^64-2 signals that nobody read.
func Signal(fd *FD) {
	one := [8]byte{1, 1} // not zero in either byte order
	_, _, _ = syscall.RawSyscall(unix.SYS_WRITE, uintptr(fd.Int()), uintptr(SlicePointer(one[:])), 8)
}
