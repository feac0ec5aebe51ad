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

// ReadsNoWait reports whether the kernel can read a file without blocking
// (FMODE_NOWAIT), which preadv2(2) tells by refusing RWF_NOWAIT before it calls
// the file system. Nothing is read: the offset is beyond every file. EBADF means
// that the descriptor is not open for reading.
func ReadsNoWait(fd int) (bool, syscall.Errno) {
	const beyond = 1 << 62
	var b [1]byte
	_, errno := PreadNoWait(fd, b[:], beyond)
	return errno == 0 || errno == syscall.EAGAIN, errno
}

// FileSystem returns the type of the file system of a descriptor, one of
// statfs(2)'s magic numbers, 0 where it is not known.
func FileSystem(fd int) int64 {
	var st unix.Statfs_t
	if retry(func() error { return unix.Fstatfs(fd, &st) }) != nil {
		return 0
	}
	return int64(st.Type)
}

// Types of file systems. Ext4 is that of ext2 and ext3, too.
const (
	FSExt4  = unix.EXT4_SUPER_MAGIC
	FSXFS   = unix.XFS_SUPER_MAGIC
	FSBtrfs = unix.BTRFS_SUPER_MAGIC
	FSF2FS  = unix.F2FS_SUPER_MAGIC
	FSFuse  = unix.FUSE_SUPER_MAGIC
)

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
	ODirect   = unix.O_DIRECT
	OAppend   = unix.O_APPEND
	ONonblock = unix.O_NONBLOCK
)
