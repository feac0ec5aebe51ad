// SPDX-License-Identifier: MIT

package fileserver

import (
	"math/bits"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	// From longTransfer on the scheduler is not told of the calls: one that takes as long as sending a MiB
	// does loses its P to another thread, and both then share the processors with the client. Where many
	// send a MiB each, that other thread is what gets them done (docs/serve.md).
	longTransfer = 8 << 20
	// briefMax is how much such a call sends: a tenth of a millisecond, during which nothing else has the P.
	briefMax = 1 << 20
)

// sendBrief sends a piece that the page cache holds, false if it may have to be waited for. Only the end is
// looked at: what is read in order is dropped in order. The kernel may drop it in between, and sendfile has no
// flag that forbids waiting, so the scheduler is told.
func sendBrief(socket, file int, off *int64, n int64) (sent int, brief bool, err error) {
	n = min(n, briefMax)
	if bits.UintSize < 64 || !inPageCache(file, *off+n-1) {
		return 0, false, nil
	}
	// The position is the kernel's for the time of the call.
	r, _, errno := unix.Syscall6(unix.SYS_SENDFILE, uintptr(socket), uintptr(file), uintptr(unsafe.Pointer(off)), uintptr(n), 0, 0)
	if errno != 0 {
		return 0, true, errno
	}
	return int(r), true, nil
}

// inPageCache reports whether the byte at a position can be had without waiting; false where the file system
// cannot tell.
func inPageCache(file int, at int64) bool {
	var b [1]byte
	iov := unix.Iovec{Base: &b[0]}
	iov.SetLen(1)
	n, _, errno := unix.RawSyscall6(unix.SYS_PREADV2, uintptr(file), uintptr(unsafe.Pointer(&iov)), 1,
		uintptr(at), uintptr(uint64(at)>>32), unix.RWF_NOWAIT)
	return errno == 0 && n == 1
}
