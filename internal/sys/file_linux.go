// SPDX-License-Identifier: MIT

package sys

import (
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// PreadNoWait reads cached bytes, as preadv2(2) with RWF_NOWAIT: it returns EAGAIN when
// the next byte is not cached, and EOPNOTSUPP when the file system does not support the
// flag. It does not enter the scheduler, because it never blocks: limit the length so
// that the copy stays short. Do not call it for a file opened with O_DIRECT, where the
// flag does not help.
func PreadNoWait(fd int, p []byte, off int64) (int, syscall.Errno) {
	p, errno := faultSlice("preadv2", p)
	if errno != 0 {
		return -1, errno
	}
	iov := syscall.Iovec{Base: unsafe.SliceData(p)}
	iov.SetLen(len(p))
	wakeMonitor()
	n, _, errno := syscall.RawSyscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1,
		uintptr(off), uintptr(uint64(off)>>32), unix.RWF_NOWAIT)
	return int(n), errno
}

// PreadvNoWait is [PreadNoWait] into several buffers, of at most limit bytes in all, for data
// that is probably not cached. Then the kernel begins to read it, which takes about 10 µs,
// and may give the processor to another thread meanwhile. So the call enters the scheduler:
// its P can be taken away.
func PreadvNoWait(fd int, bufs [][]byte, limit int, off int64) (int, syscall.Errno) {
	limit, errno := fault("preadv2", limit)
	if errno != 0 {
		return -1, errno
	}
	iov := make([]syscall.Iovec, 0, 16)
	for _, p := range bufs {
		p = p[:min(len(p), limit)]
		limit -= len(p)
		part := syscall.Iovec{Base: unsafe.SliceData(p)}
		part.SetLen(len(p))
		iov = append(iov, part)
	}
	n, _, errno := syscall.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)),
		uintptr(off), uintptr(uint64(off)>>32), unix.RWF_NOWAIT)
	return int(n), errno
}

// Preadv is preadv(2), retried when a signal interrupts it. The error is a bare errno.
func Preadv(fd int, bufs [][]byte, off int64) (int, error) {
	return vectored("preadv", bufs, func(bufs [][]byte) (int, error) { return unix.Preadv(fd, bufs, off) })
}

// Pwritev is pwritev(2), as [Preadv].
func Pwritev(fd int, bufs [][]byte, off int64) (int, error) {
	return vectored("pwritev", bufs, func(bufs [][]byte) (int, error) { return unix.Pwritev(fd, bufs, off) })
}

func vectored(name string, bufs [][]byte, call func([][]byte) (int, error)) (int, error) {
	few, errno := faultRetry(name, len(bufs))
	if errno != 0 {
		return 0, errno
	}
	for {
		if n, err := call(bufs[:max(few, 1)]); err != unix.EINTR {
			return max(n, 0), err
		}
	}
}

// SyncFileRange is sync_file_range(2).
func SyncFileRange(fd int, off, n int64, flags int) error {
	return retry(func() error { return unix.SyncFileRange(fd, off, n, flags) })
}

// Uncache writes the dirty pages of a file and drops its pages from the page cache: what is read next is what
// the disk has. After a failed write the cache is ahead of the disk, and the kernel counts the lost pages as written.
// Such an error, and one of this call, is not returned for this descriptor later.
func Uncache(fd int) {
	_ = SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE_AND_WAIT)
	_ = retry(func() error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

// SetDirect sets or clears O_DIRECT of an open file, and reports whether it is set. It sets it only where
// writes of whole blocks of that size are known to bypass the page cache.
func SetDirect(fd int, on bool, block uint32) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return false
	}
	if !on {
		_, _ = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags&^unix.O_DIRECT) // cannot fail
		return false
	}
	if t := FileSystem(fd); t != FSExt4 && t != FSXFS {
		return false
	}
	var st StatxBuf
	if Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st) == nil && st.Mask&unix.STATX_DIOALIGN != 0 &&
		(st.Dio_offset_align == 0 || st.Dio_offset_align > block || st.Dio_mem_align > block) { // (Linux 6.1)
		return false
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_SETFL, flags|unix.O_DIRECT)
	return err == nil
}

// LockRange locks a part of a file for its open file description (F_OFD_SETLK,
// F_OFD_SETLKW). mode is as in [Flock]. Without wait the error is EAGAIN when another
// open file description holds a lock on it.
func LockRange(fd, mode int, off, n int64, wait bool) error {
	kinds := [...]int16{unix.F_RDLCK, unix.F_WRLCK, unix.F_UNLCK}
	if mode < 0 || mode >= len(kinds) {
		return syscall.EINVAL
	}
	cmd := unix.F_OFD_SETLK
	if wait {
		cmd = unix.F_OFD_SETLKW
	}
	lock := unix.Flock_t{Type: kinds[mode], Whence: 0, Start: off, Len: n}
	return retry(func() error { return unix.FcntlFlock(uintptr(fd), cmd, &lock) })
}

// ReadsNoWait reports whether the kernel can read a file without blocking
// (FMODE_NOWAIT). If not, preadv2(2) refuses RWF_NOWAIT before it calls the file
// system. It reads no data: the offset is beyond every file. EBADF means that the
// descriptor is not open for reading.
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

// Types of file systems. ext2 and ext3 have the type Ext4, too.
const (
	FSExt4  = unix.EXT4_SUPER_MAGIC
	FSXFS   = unix.XFS_SUPER_MAGIC
	FSBtrfs = unix.BTRFS_SUPER_MAGIC
	FSF2FS  = unix.F2FS_SUPER_MAGIC
	FSFuse  = unix.FUSE_SUPER_MAGIC
)

// AnswersCancelled reports whether operations on the file of a descriptor may fail with
// ECANCELED without a cancellation, as with a timerfd, a device or a file system in
// user space. Operations on pipes, sockets, block devices and files of known file
// systems never do.
func AnswersCancelled(fd int) bool {
	var st StatxBuf
	if Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st) != nil {
		return true
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFIFO, unix.S_IFSOCK, unix.S_IFBLK:
		return false
	case unix.S_IFREG:
		switch FileSystem(fd) {
		case FSExt4, FSXFS, FSBtrfs, FSF2FS, unix.TMPFS_MAGIC:
			return false
		}
	}
	return true
}

// OpenFlags returns the flags that a descriptor was opened with (F_GETFL).
func OpenFlags(fd int) (int, error) {
	if _, errno := fault("fcntl", 1); errno != 0 {
		return 0, Error("fcntl", errno)
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

// CopyFileRange copies up to n bytes between two files inside the kernel, as
// copy_file_range(2). It does not change the positions of the files. It returns 0 at
// the end of the source, and also for files without a known size, such as files in
// /proc. Errors are bare errnos; a signal does not end it.
func CopyFileRange(dst int, dstOff int64, src int, srcOff int64, n int) (int, error) {
	n, errno := faultRetry("copy_file_range", n)
	if errno != 0 {
		return 0, errno
	}
	for {
		m, err := unix.CopyFileRange(src, &srcOff, dst, &dstOff, n, 0)
		if err != syscall.EINTR {
			return max(m, 0), err
		}
	}
}

// CloneRange has the destination share the blocks of the source (FICLONERANGE),
// on file systems that can: EOPNOTSUPP, EXDEV or EINVAL elsewhere.
func CloneRange(dst int, dstOff int64, src int, srcOff, n int64) error {
	if _, errno := fault("clone", 1); errno != 0 {
		return errno
	}
	return unix.IoctlFileCloneRange(dst, &unix.FileCloneRange{
		Src_fd: int64(src), Src_offset: uint64(srcOff), Src_length: uint64(n), Dest_offset: uint64(dstOff),
	})
}

// Splice moves up to n bytes from or to a pipe, as splice(2). Pass the offset of the
// side that is not a pipe, and a negative offset for the pipe. It returns EAGAIN where it
// would wait for the pipe; see [WaitPipe]. Errors are bare errnos; a signal does not end
// it.
func Splice(dst int, dstOff int64, src int, srcOff int64, n int) (int, error) {
	n, errno := faultRetry("splice", n)
	if errno != 0 {
		return 0, errno
	}
	for {
		m, err := unix.Splice(src, notPipe(&srcOff), dst, notPipe(&dstOff), n, unix.SPLICE_F_MOVE|unix.SPLICE_F_NONBLOCK)
		if err != syscall.EINTR {
			return int(max(m, 0)), err
		}
	}
}

// WaitPipe waits until a pipe can be read, or written, or the other end is closed. It is
// for pipes in blocking mode, for which Go's netpoller does not wait.
func WaitPipe(fd int, write bool) error {
	if _, errno := faultRetry("poll", 1); errno != 0 {
		return errno
	}
	fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if write {
		fds[0].Events = unix.POLLOUT
	}
	for {
		if _, err := unix.Poll(fds, -1); err != unix.EINTR {
			return err
		}
	}
}

func notPipe(off *int64) *int64 {
	if *off < 0 {
		return nil
	}
	return off
}

// Reopen opens the file of a descriptor again with the same access, so that it has its
// own position and goes through the page cache.
func Reopen(fd int) (*FD, error) {
	if _, errno := fault("open", 1); errno != 0 {
		return nil, errno
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil {
		return nil, err
	}
	flags = flags&(unix.O_ACCMODE|unix.O_SYNC|unix.O_DSYNC) | unix.O_CLOEXEC
	again, err := unix.Open("/proc/self/fd/"+strconv.Itoa(fd), flags, 0)
	if err != nil {
		return nil, err
	}
	return NewFD(again), nil
}

// PunchHole replaces n bytes by a hole, which reads as zeros and takes no space. It
// does not change the size of the file.
func PunchHole(fd int, off, n int64) error {
	return Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, n)
}

// NextData returns where the next data of a file begin and end, from off on;
// the bytes between are a hole. It moves the position of the descriptor. ENXIO
// means that only a hole follows, or nothing.
func NextData(fd int, off int64) (start, end int64, err error) {
	if _, errno := fault("lseek", 1); errno != 0 {
		return 0, 0, errno
	}
	if start, err = unix.Seek(fd, off, unix.SEEK_DATA); err != nil {
		return 0, 0, err
	}
	end, err = unix.Seek(fd, start, unix.SEEK_HOLE)
	return start, end, err
}

// HaveFdatasync reports whether [Fdatasync] works.
const HaveFdatasync = true

// Fdatasync makes the data of a file durable, and the metadata that are needed to read
// the data, as fdatasync(2). A signal does not end it. After any other error the data
// must be considered lost: the kernel forgets which pages failed, and a second call
// would return success. The error is a bare errno, as os wants it in its errors.
func Fdatasync(fd int) error {
	if _, errno := faultRetry("fdatasync", 1); errno != 0 {
		return errno
	}
	for {
		if err := syscall.Fdatasync(fd); err != syscall.EINTR {
			return err
		}
	}
}

// Fallocate is fallocate(2). The error is a bare errno, as os wants it in its
// errors.
func Fallocate(fd int, mode uint32, off, n int64) error {
	return retry(func() error { return unix.Fallocate(fd, mode, off, n) })
}

// Fadvise is posix_fadvise(2), with a bare errno as its error.
func Fadvise(fd int, off, n int64, advice int) error {
	return retry(func() error { return unix.Fadvise(fd, off, n, advice) })
}

// The calls of this file take a directory and a name below it. Their errors
// are bare errnos, as os wants them in its errors; a signal does not end them.

// Flags of [OpenAt2], in addition to the flags of package syscall.
const (
	OPath      = unix.O_PATH
	OTmpfile   = unix.O_TMPFILE
	OLargefile = unix.O_LARGEFILE

	ResolveBeneath      = unix.RESOLVE_BENEATH
	ResolveNoMagiclinks = unix.RESOLVE_NO_MAGICLINKS
	ResolveCached       = 0x20 // RESOLVE_CACHED, 5.12; package unix lacks it
)

// Flags of [RenameAt2].
const (
	RenameExchange = unix.RENAME_EXCHANGE
)

// AtCwd stands for the working directory, as the argument for a directory.
const AtCwd = unix.AT_FDCWD

// Flags of the calls that take a name.
const (
	AtEmptyPath = unix.AT_EMPTY_PATH
	AtNoFollow  = unix.AT_SYMLINK_NOFOLLOW
)

// retry repeats a call that a signal interrupted.
func retry(call func() error) error {
	if _, errno := faultRetry("path call", 1); errno != 0 {
		return errno
	}
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// OpenAt2 is openat2(2); the descriptor has close-on-exec set. mode counts only
// where a file is created. (Linux 5.6)
func OpenAt2(dir int, name string, flags int, mode uint32, resolve uint64) (fd int, err error) {
	how := unix.OpenHow{Flags: uint64(uint32(flags | unix.O_CLOEXEC)), Resolve: resolve}
	if flags&unix.O_CREAT != 0 || flags&unix.O_TMPFILE == unix.O_TMPFILE {
		how.Mode = uint64(mode)
	}
	err = retry(func() error {
		fd, err = unix.Openat2(dir, name, &how)
		return err
	})
	return fd, err
}

// Fstat is fstat(2).
func Fstat(fd int, st *syscall.Stat_t) error {
	return retry(func() error { return syscall.Fstat(fd, st) })
}

// RenameAt2 is renameat2(2). (Linux 3.15)
func RenameAt2(oldDir int, oldName string, newDir int, newName string, flags uint) error {
	return retry(func() error { return unix.Renameat2(oldDir, oldName, newDir, newName, flags) })
}

// StatxBuf is struct statx.
type StatxBuf = unix.Statx_t

// Statx is statx(2). The error is a bare errno, as os wants it in its errors.
// (Linux 4.11)
func Statx(dir int, name string, flags int, mask uint32, st *StatxBuf) error {
	return retry(func() error { return unix.Statx(dir, name, flags, int(mask), st) })
}

// What [StatxAt] is asked: for the number of the inode, and for the time of its last change.
const (
	StatxIno   = unix.STATX_INO
	StatxCtime = unix.STATX_CTIME
)

// StatxAt is [Statx] of a name that ends with a zero byte. It allocates nothing.
func StatxAt(dir int, name *byte, flags int, mask uint32, st *StatxBuf) error {
	if _, errno := faultRetry("path call", 1); errno != 0 {
		return errno
	}
	for {
		_, _, errno := syscall.Syscall6(unix.SYS_STATX, uintptr(dir), uintptr(unsafe.Pointer(name)), uintptr(flags), uintptr(mask), uintptr(unsafe.Pointer(st)), 0)
		if errno == 0 {
			return nil
		}
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// Devices of files that [OpenRegular] has opened, and has left to package os; 0 before.
var inline, notInline atomic.Uint64

// OpenRegular opens a regular file that the kernel reads without blocking if it is cached, as
// os.OpenFile does, but without the netpoller, which refuses such files. For everything else it
// returns -1: package os opens it, or finds the error.
func OpenRegular(name string, flag int) int {
	const suits = unix.O_RDWR | unix.O_APPEND | unix.O_TRUNC | unix.O_DIRECT | unix.O_SYNC | unix.O_DSYNC |
		unix.O_NOATIME | unix.O_CLOEXEC | unix.O_LARGEFILE
	var path [256]byte
	if flag&^suits != 0 || len(name) >= len(path) || strings.IndexByte(name, 0) >= 0 {
		return -1
	}
	copy(path[:], name)
	var st StatxBuf
	err := StatxAt(AtCwd, &path[0], unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &st)
	dev := uint64(st.Dev_major)<<32 | uint64(st.Dev_minor)
	if err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || dev == notInline.Load() {
		return -1
	}
	if _, errno := faultRetry("open", 1); errno != 0 {
		return -1
	}
	dir := AtCwd
	n, _, errno := syscall.Syscall6(unix.SYS_OPENAT, uintptr(dir), uintptr(unsafe.Pointer(&path[0])),
		uintptr(flag|unix.O_LARGEFILE|unix.O_CLOEXEC), 0, 0, 0)
	if errno != 0 {
		return -1
	}
	if dev == inline.Load() {
		return int(n)
	}
	if yes, _ := ReadsNoWait(int(n)); !yes {
		notInline.Store(dev)
		_ = syscall.Close(int(n)) // nothing was done with it
		return -1
	}
	inline.Store(dev)
	return int(n)
}

// Major returns one part of a device number.
func Major(dev uint64) uint32 { return unix.Major(dev) }

// Minor returns the other part of a device number.
func Minor(dev uint64) uint32 { return unix.Minor(dev) }

// Mincore returns a byte for each page of a part of a file. Its lowest bit is set if the page is
// in the page cache. Mincore reads nothing. off is a multiple of the page size.
func Mincore(fd int, off int64, n int) ([]byte, error) {
	m, err := unix.Mmap(fd, off, n, unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return nil, err
	}
	defer unix.Munmap(m)
	pages := make([]byte, (n+os.Getpagesize()-1)/os.Getpagesize())
	return pages, Resident(m, pages)
}

// Resident is mincore(2): it sets the lowest bit of pages[i] if page i of mapped memory is in the
// page cache, and clears it otherwise. The kernel sets all bits if the process neither owns the
// file nor may write it.
func Resident(m, pages []byte) error {
	if _, errno := faultRetry("mincore", 1); errno != 0 {
		return errno
	}
	if _, _, errno := unix.Syscall(unix.SYS_MINCORE, uintptr(unsafe.Pointer(unsafe.SliceData(m))), uintptr(len(m)),
		uintptr(unsafe.Pointer(unsafe.SliceData(pages)))); errno != 0 {
		return errno
	}
	return nil
}

// WillNeed starts to read a part of a file into the page cache (POSIX_FADV_WILLNEED).
func WillNeed(fd int, off, n int64) error { return Fadvise(fd, off, n, unix.FADV_WILLNEED) }
