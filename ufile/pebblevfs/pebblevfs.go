// SPDX-License-Identifier: MIT

//go:build linux

// Package pebblevfs is a file system for pebble (github.com/cockroachdb/pebble/v2).
// Package ufile reads and writes its files. Cached blocks of sstables are read without
// entering the scheduler. Other blocks are read through rings that all readers share.
//
//	db, err := pebble.Open(dir, &pebble.Options{FS: pebblevfs.New(nil)})
//
// Names, links, directories, locks and disk usage are handled by vfs.Default. Durability
// is as with vfs.Default: Sync is fsync(2), SyncData is fdatasync(2), and SyncTo uses
// sync_file_range(2) on the same file systems as pebble. Where io_uring is absent or
// forbidden, all calls are plain system calls, unless the System has ModeRing.
//
// On systems other than Linux, New returns vfs.Default.
package pebblevfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/ringside-io/ringside/ufile"
	"golang.org/x/sys/unix"
)

// New returns a file system whose files are opened by s. If s is nil, New makes a System
// with the default options. Several databases may use the file system concurrently. As
// with vfs.Default, its errors wrap the errors of package os.
func New(s *ufile.System) vfs.FS {
	if s == nil {
		s, _ = ufile.NewSystem(ufile.Options{}) // fails only with ModeRing
	}
	return &fileSystem{vfs.Default, s}
}

type fileSystem struct {
	vfs.FS
	sys *ufile.System
}

// Unwrap returns nil, so that vfs.Root returns this file system and not vfs.Default.
func (f *fileSystem) Unwrap() vfs.FS { return nil }

// Create creates a file. It first removes an existing file of this name.
func (f *fileSystem) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	for {
		file, err := f.open(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
		if !errors.Is(err, fs.ErrExist) {
			return file, err
		}
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
}

// Open opens a file for reading. A directory is opened, too.
func (f *fileSystem) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.open(name, os.O_RDONLY, opts...)
}

// OpenReadWrite opens a file for reading and writing, and creates it if it does not
// exist.
func (f *fileSystem) OpenReadWrite(name string, _ vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	return f.open(name, os.O_RDWR|os.O_CREATE, opts...)
}

// ReuseForWrite renames a file and opens it under its new name, without truncating it.
func (f *fileSystem) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := f.Rename(oldname, newname); err != nil {
		return nil, err
	}
	return f.OpenReadWrite(newname, category)
}

func (f *fileSystem) open(name string, flag int, opts ...vfs.OpenOption) (vfs.File, error) {
	u, err := f.sys.OpenFile(name, flag, 0o666)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	file := &file{File: u, ranges: syncsRanges(u)}
	for _, opt := range opts {
		opt.Apply(file)
	}
	return file, nil
}

// syncsRanges reports whether SyncTo uses sync_file_range(2). File systems other than
// ext4 ignore the call, or are not known to honour it.
func syncsRanges(u *ufile.File) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(int(u.Fd()), &st) == nil && st.Type == unix.EXT4_SUPER_MAGIC && u.SyncFileRange(0, 0, 0) == nil
}

// file is a file of pebble.
type file struct {
	*ufile.File
	ranges bool
}

// Prefetch asks the kernel to read a part of the file into the page cache.
func (f *file) Prefetch(off, n int64) error {
	return f.call("readahead", func(fd int) error {
		_, _, errno := unix.Syscall(unix.SYS_READAHEAD, uintptr(fd), uintptr(off), uintptr(n))
		if errno == unix.EINVAL || errno == 0 { // files that have no page cache
			return nil
		}
		return errno
	})
}

// Preallocate reserves space on the device and does not change the size of the file.
func (f *file) Preallocate(off, n int64) error {
	return f.call("fallocate", func(fd int) error { return unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, off, n) })
}

// call makes a system call with the descriptor, and repeats it when a signal interrupts
// it.
func (f *file) call(op string, do func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	if err := conn.Control(func(fd uintptr) {
		for {
			if callErr = do(int(fd)); callErr != unix.EINTR {
				return
			}
		}
	}); err != nil {
		return err
	}
	if callErr != nil {
		return &fs.PathError{Op: op, Path: f.Name(), Err: callErr}
	}
	return nil
}

// SyncData makes the content of the file durable, by fdatasync(2).
func (f *file) SyncData() error { return f.Datasync() }

// SyncTo starts to write the first length bytes of the file. Where it cannot, it makes
// the whole content durable and returns true.
func (f *file) SyncTo(length int64) (full bool, err error) {
	if f.ranges {
		return false, f.SyncFileRange(0, length, ufile.SyncWaitBefore|ufile.SyncWrite)
	}
	if err := f.Datasync(); err != nil {
		return false, err
	}
	return true, nil
}

// Stat describes the file. Only vfs.Default can make a DeviceID, and only from a name, so
// Stat passes it the descriptor's name in /proc.
func (f *file) Stat() (vfs.FileInfo, error) {
	info, err := f.File.Stat()
	if err != nil {
		return nil, err
	}
	byName, err := vfs.Default.Stat(fmt.Sprintf("/proc/self/fd/%d", f.Fd()))
	if err != nil {
		if byName, err = vfs.Default.Stat(f.Name()); err != nil {
			return nil, err
		}
	}
	return fileInfo{info, byName.DeviceID()}, nil
}

type fileInfo struct {
	fs.FileInfo
	device vfs.DeviceID
}

func (i fileInfo) DeviceID() vfs.DeviceID { return i.device }
