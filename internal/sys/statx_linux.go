// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// StatxBuf is struct statx.
type StatxBuf = unix.Statx_t

// Statx is statx(2). The error is a bare errno, as os wants it in its errors.
// (Linux 4.11)
func Statx(dir int, name string, flags int, mask uint32, st *StatxBuf) error {
	return retry(func() error { return unix.Statx(dir, name, flags, int(mask), st) })
}

// StatxIno asks [StatxAt] for the number of the inode.
const StatxIno = unix.STATX_INO

// StatxAt is [Statx] of a name that ends with a zero byte. It allocates nothing.
func StatxAt(dir int, name *byte, flags int, mask uint32, st *StatxBuf) error {
	for {
		if Faulty {
			if _, errno := faulty("path call", 1); errno == syscall.EINTR {
				continue
			} else if errno != 0 {
				return errno
			}
		}
		_, _, errno := syscall.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags), uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
		if errno == 0 {
			return nil
		}
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// Major returns one part of a device number.
func Major(dev uint64) uint32 { return unix.Major(dev) }

// Minor returns the other part of a device number.
func Minor(dev uint64) uint32 { return unix.Minor(dev) }
