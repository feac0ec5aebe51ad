// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// segmentFile is what a Log asks of a file. Tests put one in place that
// fails or crashes on demand.
type segmentFile interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	// Sync makes the file durable: all of it, or what is needed to read the data
	// back.
	Sync(full bool) error
}

// segmentStore is what a Log asks of its directory.
type segmentStore interface {
	List() ([]string, error)
	// Create creates a file, or empties the one that exists.
	Create(name string) (segmentFile, error)
	Open(name string, write bool) (segmentFile, error)
	Rename(from, to string) error
	Remove(name string) error
	// Sync makes what was created, renamed and removed durable.
	Sync() error
	// Path returns the name for messages.
	Path(name string) string
	Close() error
}

// dirStore is a directory of the operating system.
type dirStore struct {
	dir  string
	perm fs.FileMode
	lock *os.File
}

// ErrInUse is what Open answers when the directory has an open log with
// the same prefix already, in this process or another.
var ErrInUse = errors.New("a log is open there already")

// openDirStore creates the directory when it is missing, durably, and locks it.
func openDirStore(dir, prefix string, perm fs.FileMode) (*dirStore, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	s := &dirStore{dir: dir, perm: perm}
	lock, err := os.OpenFile(s.Path(prefix+"lock"), os.O_RDWR|os.O_CREATE, perm)
	if err != nil {
		return nil, err
	}
	ok, err := sys.TryLock(lock)
	if err == nil && !ok {
		err = ErrInUse
	}
	if err != nil {
		lock.Close()
		return nil, &fs.PathError{Op: "lock", Path: lock.Name(), Err: err}
	}
	s.lock = lock
	return s, nil
}

// makeDir is os.MkdirAll with the entries of what it creates made durable.
func makeDir(dir string) error {
	switch st, err := os.Stat(dir); {
	case err == nil && st.IsDir():
		return nil
	case err == nil:
		return &fs.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDir(parent); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o777); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// syncDir makes the entries of a directory durable. Windows does that itself
// and cannot be asked; some network file systems cannot be asked either.
func syncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func (s *dirStore) List() ([]string, error) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func (s *dirStore) Create(name string) (segmentFile, error) {
	return s.open(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
}

func (s *dirStore) Open(name string, write bool) (segmentFile, error) {
	if write {
		return s.open(name, os.O_RDWR)
	}
	return s.open(name, os.O_RDONLY)
}

func (s *dirStore) open(name string, flags int) (segmentFile, error) {
	f, err := os.OpenFile(s.Path(name), flags, s.perm)
	if err != nil {
		return nil, err
	}
	d := &dirFile{File: f, fd: -1}
	conn, err := f.SyscallConn()
	if err == nil {
		err = conn.Control(func(fd uintptr) { d.fd = int(fd) })
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

func (s *dirStore) Rename(from, to string) error { return os.Rename(s.Path(from), s.Path(to)) }
func (s *dirStore) Remove(name string) error     { return os.Remove(s.Path(name)) }
func (s *dirStore) Sync() error                  { return syncDir(s.dir) }
func (s *dirStore) Path(name string) string      { return filepath.Join(s.dir, name) }

func (s *dirStore) Close() error {
	if s.lock == nil {
		return nil
	}
	return s.lock.Close()
}

// dirFile is a file of the operating system.
type dirFile struct {
	*os.File
	fd int // for the calls that os lacks; valid while the file is open
}

func (f *dirFile) Size() (int64, error) {
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return st.Size(), nil
}

func (f *dirFile) Sync(full bool) error {
	if full || !sys.HaveFdatasync {
		return f.File.Sync()
	}
	if err := sys.Fdatasync(f.fd); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

// noSpace says whether an error means that the disk or the quota is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// writeFull is WriteAt that calls a short write an error.
func writeFull(f segmentFile, p []byte, off int64) error {
	n, err := f.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("appendlog: wrote %d of %d bytes: %w", n, len(p), io.ErrShortWrite)
	}
	return err
}
