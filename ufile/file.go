// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"
	"weak"

	"github.com/ringside-io/ringside/internal/fdlock"
	"github.com/ringside-io/ringside/internal/sys"
)

// File is an open file with the methods of os.File.
type File struct {
	// The counters share a cache line with the lock, which every operation
	// touches anyway.
	lock                  fdlock.Lock
	cached, plain, ringed atomic.Uint64
	known                 atomic.Uint32 // the route
	misses                atomic.Uint32 // large reads since one was cached
	reads, writes         atomic.Bool   // positional calls are known to be allowed

	fd       int
	f        *os.File
	sys      *System
	seekable bool // a regular file or block device
	direct   bool // O_DIRECT
	appends  bool // O_APPEND
	polled   bool // os has found that it can be polled
	confined bool // names in it must not be looked up by path
	self     weak.Pointer[File]
}

// NewFile makes a File of an open os.File, of which it takes ownership.
func NewFile(f *os.File) (*File, error) { return defaultSystem().NewFile(f) }

// NewFile makes a File of an open os.File, of which it takes ownership: it is
// closed when this fails.
func (s *System) NewFile(f *os.File) (*File, error) {
	u := &File{f: f, sys: s, fd: -1}
	if err := u.inspect(); err != nil {
		f.Close()
		return nil, err
	}
	s.adopt(u)
	return u, nil
}

// inspect learns what kind of file it is.
func (f *File) inspect() error {
	st, err := f.f.Stat()
	if err != nil {
		return err
	}
	kind := st.Mode() & (fs.ModeType &^ fs.ModeDevice)
	f.seekable = st.Mode().IsRegular() || kind == 0 && st.Mode()&fs.ModeDevice != 0
	conn, err := f.f.SyscallConn()
	if err != nil {
		return err
	}
	var flagsErr error
	err = conn.Control(func(fd uintptr) {
		f.fd = int(fd)
		var flags int
		if flags, flagsErr = sys.OpenFlags(f.fd); flagsErr == nil {
			f.direct = flags&sys.ODirect != 0
			f.appends = flags&sys.OAppend != 0
			f.polled = flags&sys.ONonblock != 0
		}
	})
	if err != nil {
		return err
	}
	if flagsErr != nil { // no such call here: nothing to accelerate
		f.seekable = false
	}
	return nil
}

// std returns the os.File. That of a nil File is nil, and its methods know
// what to answer.
func (f *File) std() *os.File {
	if f == nil {
		return nil
	}
	return f.f
}

// Name returns the name that the file was opened by.
func (f *File) Name() string { return f.std().Name() }

// Read reads from the file's position, as os.File.Read.
func (f *File) Read(p []byte) (int, error) { return f.std().Read(p) }

// Write writes at the file's position, as os.File.Write.
func (f *File) Write(p []byte) (int, error) { return f.std().Write(p) }

// WriteString is Write of a string.
func (f *File) WriteString(s string) (int, error) { return f.std().WriteString(s) }

// Seek moves the file's position, as os.File.Seek.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.std().Seek(offset, whence) }

// Sync makes the file durable, as os.File.Sync. A plain fsync(2) beats the
// ring, which hands it to a worker thread.
func (f *File) Sync() error { return f.std().Sync() }

// Truncate changes the size, as os.File.Truncate.
func (f *File) Truncate(size int64) error { return f.std().Truncate(size) }

// Stat describes the file, as os.File.Stat.
func (f *File) Stat() (fs.FileInfo, error) { return f.std().Stat() }

// Chmod changes the mode, as os.File.Chmod.
func (f *File) Chmod(mode fs.FileMode) error { return f.std().Chmod(mode) }

// Chown changes the owner, as os.File.Chown.
func (f *File) Chown(uid, gid int) error { return f.std().Chown(uid, gid) }

// Chdir makes the directory the working directory, as os.File.Chdir.
func (f *File) Chdir() error { return f.std().Chdir() }

// ReadDir lists the directory, as os.File.ReadDir.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) {
	if f == nil || !f.confined {
		return f.std().ReadDir(n)
	}
	infos, err := f.f.Readdir(n)
	entries := make([]fs.DirEntry, len(infos))
	for i, info := range infos {
		entries[i] = fs.FileInfoToDirEntry(info)
	}
	return entries, err
}

// Readdir lists the directory, as os.File.Readdir.
func (f *File) Readdir(n int) ([]fs.FileInfo, error) { return f.std().Readdir(n) }

// Readdirnames lists the directory, as os.File.Readdirnames.
func (f *File) Readdirnames(n int) ([]string, error) { return f.std().Readdirnames(n) }

// SetDeadline bounds Read and Write of pipes and other pollable files, as
// os.File.SetDeadline. Regular files have no deadlines: os.ErrNoDeadline.
func (f *File) SetDeadline(t time.Time) error { return f.std().SetDeadline(t) }

// SetReadDeadline is SetDeadline for Read.
func (f *File) SetReadDeadline(t time.Time) error { return f.std().SetReadDeadline(t) }

// SetWriteDeadline is SetDeadline for Write.
func (f *File) SetWriteDeadline(t time.Time) error { return f.std().SetWriteDeadline(t) }

// SyscallConn gives access to the descriptor, as os.File.SyscallConn.
func (f *File) SyscallConn() (syscall.RawConn, error) { return f.std().SyscallConn() }

// Fd returns the descriptor, which the File goes on to own.
func (f *File) Fd() uintptr { return f.std().Fd() }

// Close waits for positional reads and writes in flight, of regular files and
// block devices, and closes the file.
// A second call answers os.ErrClosed in a PathError, as os.File.Close.
func (f *File) Close() error {
	if f.std() == nil {
		return os.ErrInvalid
	}
	if !f.lock.Close() {
		return f.pathError("close", os.ErrClosed)
	}
	runtime.SetFinalizer(f, nil)
	err := f.f.Close()
	if ringErr := f.sys.forget(f); err == nil {
		err = ringErr
	}
	return err
}

func (f *File) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.f.Name(), Err: err}
}
