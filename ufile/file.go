// SPDX-License-Identifier: MIT

package ufile

import (
	"io/fs"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/fdlock"
	"github.com/ringside-io/ringside/internal/sys"
)

// File is an open file with the methods of os.File.
type File struct {
	*state

	direct  bool // O_DIRECT
	appends bool // O_APPEND
	unsure  bool // O_APPEND may have been set since: the flags could not be read
	lazy    bool // opened without an os.File; see lazy.go
	dropped runtime.Cleanup
}

// state is the part of a File that its System refers to, so that the System does not keep
// the File alive.
type state struct {
	sys  *System
	fd   int
	name string                  // that the file was opened by
	file atomic.Pointer[os.File] // nil until it is needed; then it owns the descriptor
	mu   sync.Mutex              // makes file
	// The counters share a cache line with the lock, which every operation
	// touches anyway.
	lock                  fdlock.Lock
	cached, plain, ringed atomic.Uint64
	fixed                 atomic.Uint64  // through a ring, with registered memory; not in ringed
	kind                  atomic.Uint32  // a fileKind
	known                 atomic.Uint32  // a route
	misses                atomic.Uint32  // large reads since one was cached
	hits                  atomic.Uint32  // reads since one was not cached, up to hotAfter
	cold                  atomic.Uint32  // smaller reads since one was cached
	first                 atomic.Bool    // readFirst was called
	polled                atomic.Bool    // os has found that it can be polled; known with the route
	allowed               [2]atomic.Bool // by direction: positional calls are known to be allowed

	syncs syncs // of Sync and Datasync
}

// Open opens a file for reading, like os.Open.
func (s *System) Open(name string) (*File, error) { return s.OpenFile(name, os.O_RDONLY, 0) }

// Create creates or truncates a file, like os.Create.
func (s *System) Create(name string) (*File, error) {
	return s.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// CreateTemp creates a new file with a unique name, like os.CreateTemp.
func (s *System) CreateTemp(dir, pattern string) (*File, error) {
	f, err := os.CreateTemp(dir, pattern)
	if err != nil {
		return nil, err
	}
	return s.NewFile(f)
}

// OpenFile opens a file, like os.OpenFile. flag may include syscall.O_DIRECT.
func (s *System) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	if u := s.openLazy(name, flag); u != nil {
		u.setFlags(flag)
		return u, nil
	}
	f, err := os.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	u, err := s.newFile(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	u.setFlags(flag)
	return u, nil
}

// CreateTemp creates a new file with a unique name, like os.CreateTemp.
func CreateTemp(dir, pattern string) (*File, error) { return defaultSystem().CreateTemp(dir, pattern) }

// Open opens a file for reading, like os.Open.
func Open(name string) (*File, error) { return defaultSystem().Open(name) }

// Create creates or truncates a file, like os.Create.
func Create(name string) (*File, error) { return defaultSystem().Create(name) }

// OpenFile opens a file, like os.OpenFile. flag may include syscall.O_DIRECT, which
// requires that offsets, lengths and buffers are aligned to the device's blocks (see
// [AlignedBuffer]).
func OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	return defaultSystem().OpenFile(name, flag, perm)
}

// fileKind is the kind of a file, found by fstat(2) when it is first needed.
type fileKind uint32

const (
	kindUnknown  fileKind = iota
	kindOther             // all calls are methods of os.File
	kindSeekable          // a regular file or block device
)

// NewFile returns a File for an open os.File, and takes ownership of it; see
// [System.NewFile].
func NewFile(f *os.File) (*File, error) { return defaultSystem().NewFile(f) }

// NewFile returns a File for an open os.File, and takes ownership of it. If NewFile
// fails, it closes f.
func (s *System) NewFile(f *os.File) (*File, error) {
	if _, err := f.Stat(); err != nil {
		f.Close()
		return nil, err
	}
	u, err := s.newFile(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	if flags, err := sys.OpenFlags(u.fd); err == nil {
		u.setFlags(flags)
	} else { // no such call here: nothing to accelerate
		u.kind.Store(uint32(kindOther))
	}
	return u, nil
}

// newFile returns a File for an open os.File without a system call.
func (s *System) newFile(f *os.File) (*File, error) {
	u := &File{state: &state{sys: s, fd: -1, name: f.Name()}}
	u.file.Store(f)
	conn, err := f.SyscallConn()
	if err != nil {
		return nil, err
	}
	if err := conn.Control(func(fd uintptr) { u.fd = int(fd) }); err != nil {
		return nil, err
	}
	s.retryRings()
	return u, nil
}

// setFlags records the flags that the file was opened with.
func (f *File) setFlags(flags int) {
	f.direct = flags&sys.ODirect != 0
	f.appends = flags&sys.OAppend != 0
}

// mayAppend reports whether only writes in their order are sure to be right.
func (f *File) mayAppend() bool { return f.appends || f.unsure }

// seekable reports whether the file is a regular file or a block device. The first
// call makes a system call.
func (f *File) seekable() bool {
	switch fileKind(f.kind.Load()) {
	case kindSeekable:
		return true
	case kindOther:
		return false
	}
	if !f.lock.Acquire() { // closed: os.File returns the error
		return false
	}
	defer f.lock.Release()
	kind := kindOther
	if mode, _, errno := sys.FileMode(f.fd); errno == 0 && sys.ODirect != 0 {
		if t := mode & syscall.S_IFMT; t == syscall.S_IFREG || t == syscall.S_IFBLK {
			kind = kindSeekable
			f.sys.join(f)
		}
	}
	f.kind.Store(uint32(kind))
	return kind == kindSeekable
}

// Name returns the name that the file was opened by.
func (f *File) Name() string {
	if f.none() {
		return f.std().Name()
	}
	return f.name
}

// Read reads from the file's position, like os.File.Read.
func (f *File) Read(p []byte) (int, error) { return f.std().Read(p) }

// Write writes at the file's position, like os.File.Write.
func (f *File) Write(p []byte) (int, error) { return f.std().Write(p) }

// WriteString is Write of a string.
func (f *File) WriteString(s string) (int, error) { return f.std().WriteString(s) }

// Seek moves the file's position, like os.File.Seek.
func (f *File) Seek(offset int64, whence int) (int64, error) { return f.std().Seek(offset, whence) }

// SyncFileRange starts to write the dirty pages of n bytes at the offset off, or
// waits until they are written, like sync_file_range(2) with the same flags. n = 0 means
// up to the end of the file. SyncFileRange leaves less work to a later Sync and makes
// nothing durable: it writes neither metadata nor the cache of the device. On systems
// other than Linux the error is errors.ErrUnsupported.
func (f *File) SyncFileRange(off, n int64, flags SyncFlags) error {
	return f.control("sync_file_range", func(fd int) error { return sys.SyncFileRange(fd, off, n, int(flags)) })
}

// SyncFlags select what [File.SyncFileRange] does.
type SyncFlags int

const (
	SyncWaitBefore SyncFlags = 1 << iota // first wait for pages that are already being written
	SyncWrite                            // start to write dirty pages
	SyncWaitAfter                        // wait until they are written
)

// OSFile returns the underlying os.File, for packages that require one. The File still
// owns it: do not close it, and do not use it after Close. Both share the position.
func (f *File) OSFile() *os.File { return f.std() }

// control calls a function with the descriptor, which stays open until it returns.
func (f *File) control(op string, call func(fd int) error) error {
	if f.none() {
		return os.ErrInvalid
	}
	conn, err := f.std().SyscallConn()
	if err != nil {
		return err
	}
	var callErr error
	if err := conn.Control(func(fd uintptr) { callErr = call(int(fd)) }); err != nil {
		return f.pathError(op, os.ErrClosed)
	}
	if callErr != nil {
		return f.pathError(op, callErr)
	}
	return nil
}

// Truncate changes the size, like os.File.Truncate.
func (f *File) Truncate(size int64) error { return f.std().Truncate(size) }

// Stat describes the file, like os.File.Stat.
func (f *File) Stat() (fs.FileInfo, error) { return f.std().Stat() }

// Chmod changes the mode, like os.File.Chmod.
func (f *File) Chmod(mode fs.FileMode) error { return f.std().Chmod(mode) }

// Chown changes the owner, like os.File.Chown.
func (f *File) Chown(uid, gid int) error { return f.std().Chown(uid, gid) }

// Chdir makes the directory the working directory, like os.File.Chdir.
func (f *File) Chdir() error { return f.std().Chdir() }

// ReadDir lists the directory, like os.File.ReadDir.
func (f *File) ReadDir(n int) ([]fs.DirEntry, error) { return f.std().ReadDir(n) }

// Readdir lists the directory, like os.File.Readdir.
func (f *File) Readdir(n int) ([]fs.FileInfo, error) { return f.std().Readdir(n) }

// Readdirnames lists the directory, like os.File.Readdirnames.
func (f *File) Readdirnames(n int) ([]string, error) { return f.std().Readdirnames(n) }

// SetDeadline sets the deadline of Read and Write on pipes and other pollable files, like
// os.File.SetDeadline. Regular files have no deadlines; the error is os.ErrNoDeadline.
func (f *File) SetDeadline(t time.Time) error { return f.std().SetDeadline(t) }

// SetReadDeadline is SetDeadline for Read.
func (f *File) SetReadDeadline(t time.Time) error { return f.std().SetReadDeadline(t) }

// SetWriteDeadline is SetDeadline for Write.
func (f *File) SetWriteDeadline(t time.Time) error { return f.std().SetWriteDeadline(t) }

// SyscallConn gives access to the descriptor, like os.File.SyscallConn.
func (f *File) SyscallConn() (syscall.RawConn, error) { return f.std().SyscallConn() }

// Fd returns the descriptor. The File still owns it.
func (f *File) Fd() uintptr { return f.std().Fd() }

// Close waits for the positional reads and writes of a regular file or block device that
// are in flight, and closes the file. A second call returns a *fs.PathError that wraps
// os.ErrClosed, like os.File.Close.
func (f *File) Close() error {
	if f.none() {
		return os.ErrInvalid
	}
	if !f.lock.Close() {
		return f.pathError("close", os.ErrClosed)
	}
	var err error
	if std := f.file.Load(); std != nil {
		err = std.Close()
	} else if errno := f.closeLazy(); errno != nil {
		err = f.pathError("close", errno)
	}
	f.dropped.Stop()
	if f.state.stats() == (Stats{}) && fileKind(f.kind.Load()) == kindUnknown {
		return err // it has not joined the system
	}
	if ringErr := f.sys.forget(f.state); err == nil {
		err = ringErr
	}
	return err
}

func (f *state) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: f.name, Err: err}
}

// DirectAlign is an alignment in bytes that satisfies O_DIRECT on every
// common device.
const DirectAlign = 4096

// AlignedBuffer returns n bytes of memory aligned to DirectAlign bytes, for files opened
// with O_DIRECT.
func AlignedBuffer(n int) []byte { return sys.AlignedBytes(n, DirectAlign) }
