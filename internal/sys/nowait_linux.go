// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PreadNoWait reads what the page cache holds, as preadv2(2) with RWF_NOWAIT:
// EAGAIN when the next byte would have to be waited for, EOPNOTSUPP when the
// file system cannot tell. It does not tell the scheduler, because it never
// blocks: bound the length so that the copy stays short. On a file opened with
// O_DIRECT the flag does not help; do not call it there.
func PreadNoWait(fd int, p []byte, off int64) (int, syscall.Errno) {
	if Faulty {
		n, errno := faulty("preadv2", len(p))
		if errno != 0 {
			return -1, errno
		}
		p = p[:n]
	}
	iov := syscall.Iovec{Base: unsafe.SliceData(p)}
	iov.SetLen(len(p))
	n, _, errno := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1,
		uintptr(off), uintptr(uint64(off)>>32), unix.RWF_NOWAIT)
	return int(n), errno
}

// OpenFlags returns the flags that a descriptor was opened with (F_GETFL).
func OpenFlags(fd int) (int, error) {
	if Faulty {
		if _, errno := faulty("fcntl", 1); errno != 0 {
			return 0, Error("fcntl", errno)
		}
	}
	n, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return 0, Error("fcntl", err.(syscall.Errno))
	}
	return n, nil
}

// Flags of open(2) that differ between architectures.
const (
	ODirect = unix.O_DIRECT
	OAppend = unix.O_APPEND
)
