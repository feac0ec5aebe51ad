// SPDX-License-Identifier: MIT

package sys

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/abi"
)

// PollFD is struct pollfd.
type PollFD = unix.PollFd

// PollNow asks for the state of descriptors, as poll(2) without waiting, and
// returns how many have something set in Revents. The scheduler is told: a FUSE
// server may take its time to answer for a file of its own.
func PollNow(fds []PollFD) (int, syscall.Errno) {
	if Faulty {
		if _, errno := faulty("poll", len(fds)); errno != 0 {
			return -1, errno
		}
	}
	var now abi.Timespec // as large as the kernel's on every architecture
	n, _, errno := syscall.Syscall6(unix.SYS_PPOLL, uintptr(SlicePointer(fds)),
		uintptr(len(fds)), uintptr(unsafe.Pointer(&now)), 0, 0, 0)
	return int(n), errno
}
