// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// descriptor returns the file descriptor of a file of the default VFS, and -1 for other files.
// It is not a duplicate: use it only while the file is open.
func descriptor(f any) int {
	o, ok := f.(interface {
		SyscallConn() (syscall.RawConn, error)
	})
	if !ok {
		return -1
	}
	c, err := o.SyscallConn()
	if err != nil {
		return -1
	}
	fd := -1
	if err := c.Control(func(p uintptr) { fd = int(p) }); err != nil {
		return -1
	}
	return fd
}

// willNeed begins to read a range into the page cache. Errors are ignored: read-ahead is
// best effort.
func willNeed(fd int, off, n int64) { _ = unix.Fadvise(fd, off, n, unix.FADV_WILLNEED) }

// unwrittenBlock returns the offset of the first block before end of which the page cache has bytes, and the disk has
// zeros. It is end if there is none.
func unwrittenBlock(fd int, cached io.ReaderAt, end int64) (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	disk, err := os.OpenFile(fmt.Sprintf("/proc/self/fd/%d", fd), os.O_RDONLY|unix.O_DIRECT, 0)
	if err != nil {
		return 0, err
	}
	defer disk.Close()
	_ = disk.Sync() // if a shared sync has failed, the kernel would return that error of the file for the first read
	block := int(st.Blksize)
	had, has := make([]byte, 1<<17), sys.AlignedBytes(1<<17, 4096)
	for off := int64(0); off < end; off += int64(len(had)) {
		n, err := cached.ReadAt(had[:min(int64(len(had)), end-off)], off)
		if int64(n) < min(int64(len(had)), end-off) {
			return 0, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		if m, err := disk.ReadAt(has, off); m < n {
			return 0, cmp.Or(err, io.ErrUnexpectedEOF)
		}
		for i := 0; i < n; i += block {
			end := min(i+block, n)
			if !bytes.Equal(had[i:end], has[i:end]) && !slices.ContainsFunc(has[i:end], func(b byte) bool { return b != 0 }) {
				return off + int64(i), nil
			}
		}
	}
	return end, nil
}

// Bytes of the index of a WAL that connections lock, https://www.sqlite.org/walformat.html#wal_locks
const (
	writerByte = 120
	openByte   = 128 // each connection has a shared lock
)

// lockWriter takes the lock of the WAL's writer, for which it waits a tenth of a second. ok is false if another
// connection has it, or if the connections of the WAL do not lock its index. The caller calls unlock in each case.
func lockWriter(index string) (unlock func(), ok bool) {
	f, err := os.OpenFile(index, os.O_RDWR, 0)
	if err != nil {
		return func() {}, false
	}
	unlock = func() { _ = f.Close() }
	open := unix.Flock_t{Type: unix.F_WRLCK, Start: openByte, Len: 1}
	if unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &open) != nil || open.Type == unix.F_UNLCK {
		return unlock, false
	}
	for range 20 {
		writer := unix.Flock_t{Type: unix.F_WRLCK, Start: writerByte, Len: 1}
		if unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &writer) == nil {
			return unlock, true
		}
		time.Sleep(5 * time.Millisecond)
	}
	return unlock, false
}

// freeMemory returns how many bytes of memory are unused.
func freeMemory() int {
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) != nil {
		return 0
	}
	return int(min(uint64(info.Freeram)*uint64(info.Unit), math.MaxInt))
}

// openAhead opens a file again for prefetching. Pages that are fetched through this
// descriptor then do not mislead the kernel's read-ahead for the other one.
func openAhead(name string, fd int) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	var a, b unix.Stat_t
	if err = unix.Fstat(fd, &a); err == nil {
		err = unix.Fstat(descriptor(f), &b)
	}
	if err == nil && (a.Dev != b.Dev || a.Ino != b.Ino) {
		err = os.ErrNotExist // another file has the name now
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	_ = unix.Fadvise(descriptor(f), 0, 0, unix.FADV_RANDOM) // no read-ahead beyond the requested range
	return f, nil
}

// fileID returns the identity of an open file, zero if it is not known. It does not read the file's times.
func fileID(fd int) disk.ID {
	id, err := disk.Stat(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return disk.ID{}
	}
	return id
}

// identify returns a file's identity. It is zero if the file system does not record the time
// of birth. (Linux 4.11)
func identify(fd int) identity {
	var st unix.Statx_t
	const mask = unix.STATX_INO | unix.STATX_BTIME
	if unix.Statx(fd, "", unix.AT_EMPTY_PATH, mask, &st) != nil || st.Mask&mask != mask {
		return identity{}
	}
	return identity{
		device: unix.Mkdev(st.Dev_major, st.Dev_minor), inode: st.Ino,
		born: st.Btime.Sec*1e9 + int64(st.Btime.Nsec),
	}
}

// isAt reports whether the name leads to the open file. It does not read the file's times.
func isAt(fd int, name string) (bool, error) {
	open, err := disk.Stat(fd, "", unix.AT_EMPTY_PATH)
	if err != nil {
		return false, err
	}
	named, err := disk.Stat(unix.AT_FDCWD, name, 0)
	return open == named, err
}

// syncfs makes everything in the file system durable. On a file system that is read-only syncfs(2) does
// nothing and returns no error. Btrfs becomes read-only when it cannot write its metadata, also while there
// are data that it has not written. A sync of a file with such data returns an error.
func syncfs(fd int) error {
	if err := again(func() error { return unix.Syncfs(fd) }); err != nil {
		return err
	}
	var st unix.Statfs_t
	if err := again(func() error { return unix.Fstatfs(fd, &st) }); err != nil {
		return err
	}
	if st.Flags&unix.ST_RDONLY != 0 {
		return unix.EROFS
	}
	return nil
}

// syncfsReports reports whether syncfs returns an error when the file system could not
// commit its journal, as it does since Linux 5.17.
func syncfsReports() bool { return kernelHas(5, 17) }

// written waits for the file's writeback that is in progress. It returns the error of writes
// that have failed since the last such call for this open file.
func written(fd int) error {
	return again(func() error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WAIT_BEFORE) })
}

// again repeats a call that a signal interrupted.
func again(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

// unsupportedSync reports whether an error means that a file system cannot sync
// directories, rather than that a sync failed.
func unsupportedSync(err error) bool {
	errno, ok := errors.AsType[syscall.Errno](err)
	return ok && (errno == unix.EINVAL || errno == unix.ENOTSUP || errno == unix.EBADF || errno == unix.ENOSYS)
}

// wholeSectors returns nil if the device below a file writes 4 KiB whole or not at all. This
// holds if its sectors have 4 KiB or more: every other promise of a file system relies on whole
// sectors. The atomic writes that statx reports since Linux 6.11 are for direct writes only.
// (Linux 6.1)
func wholeSectors(fd int) error {
	var st unix.Statx_t
	err := unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	switch {
	case err != nil:
		return fmt.Errorf("atomic4k=on: %w", os.NewSyscallError("statx", err))
	case st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0:
		return fmt.Errorf("atomic4k=on: the file system does not report the sector size of its device: leave it off, or use atomic4k=trust if you know that the device writes 4 KiB whole")
	case st.Dio_offset_align < atomicUnit:
		return fmt.Errorf("atomic4k=on: the device has sectors of %d bytes and may write only a part of 4 KiB: leave it off", st.Dio_offset_align)
	}
	return nil
}

const atomicUnit = 4096
