// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/loghook"
	"github.com/ringside-io/ringside/internal/sys"
)

type (
	segmentFile  = loghook.File
	segmentStore = loghook.Store
)

// ErrInUse is returned by Open if the log is already open, in this process or in another
// one.
var ErrInUse = errors.New("the log is already open")

// errMoved is the failure of a log whose current segment was removed, renamed or
// replaced.
var errMoved = errors.New("the file was removed, renamed or replaced while the log was open")

// lock locks a file of a log, or returns ErrInUse.
func lock(f segmentFile, path string) error {
	ok, err := f.TryLock()
	if err == nil && !ok {
		err = ErrInUse
	}
	if err != nil {
		return &fs.PathError{Op: "lock", Path: path, Err: err}
	}
	return nil
}

// dirStore is a directory of the operating system. It stays with the directory when that
// is renamed.
type dirStore struct {
	dir    string
	perm   fs.FileMode
	root   *os.Root
	handle *os.File // of the directory
	fd     int      // of the handle
	dated  bool     // each change of an entry sets the directory's time
	empty  [1]byte  // an empty name, for statx
	old    segmentFile
}

// lockSuffix is the end of the name of the file that v0.1.0 locks. It knows no other lock.
const lockSuffix = "lock"

// lockOld locks the file that v0.1.0 locks, until Close. Deleting the file does no harm
// beside other programs, which lock the log's own files.
func (s *dirStore) lockOld(name string) error {
	f, err := s.open(name, os.O_RDWR|os.O_CREATE)
	if err != nil {
		return err
	}
	s.old = f
	return lock(f, s.Path(name))
}

// openDirStore opens a directory.
func openDirStore(dir string, perm fs.FileMode) (*dirStore, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &dirStore{dir: dir, perm: perm, root: root}
	if s.handle, err = root.Open("."); err == nil {
		s.fd, err = descriptor(s.handle)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	switch sys.FileSystem(s.fd) {
	case sys.FSExt4, sys.FSXFS, sys.FSBtrfs:
		s.dated = true
	}
	return s, nil
}

// descriptor returns the descriptor of a file. Unlike os.File.Fd it does not change the
// file's mode. The descriptor is valid while the file is open.
func descriptor(f *os.File) (fd int, err error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return -1, err
	}
	err = conn.Control(func(n uintptr) { fd = int(n) })
	return fd, err
}

// makeDir is os.MkdirAll, and makes the entries of the directories that it creates
// durable.
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

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return syncEntries(d)
}

// syncEntries makes the entries of an open directory durable. Windows does that by itself
// and has no such call. Some network file systems do not support it either.
func syncEntries(d *os.File) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	if err := d.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return nil
}

func (s *dirStore) List() ([]string, error) {
	d, err := s.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return d.Readdirnames(-1)
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
	f, err := s.root.OpenFile(name, flags, s.perm)
	if err != nil {
		return nil, s.named(err, name)
	}
	d := &dirFile{File: f, store: s, name: name}
	if d.fd, err = descriptor(f); err == nil {
		err = d.identify()
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return d, nil
}

// named replaces the name in an error of os.Root by the whole path.
func (s *dirStore) named(err error, name string) error {
	if e, ok := err.(*fs.PathError); ok {
		return &fs.PathError{Op: strings.TrimSuffix(e.Op, "at"), Path: s.Path(name), Err: e.Err}
	}
	return err
}

func (s *dirStore) Rename(from, to string) error { return s.root.Rename(from, to) }
func (s *dirStore) Remove(name string) error     { return s.named(s.root.Remove(name), name) }
func (s *dirStore) Sync() error                  { return syncEntries(s.handle) }
func (s *dirStore) Path(name string) string      { return filepath.Join(s.dir, name) }

func (s *dirStore) Close() error {
	if s.old != nil {
		s.old.Close()
	}
	if s.handle != nil {
		s.handle.Close()
	}
	return s.root.Close()
}

// dirFile is a file of the operating system.
type dirFile struct {
	*os.File
	store  *dirStore
	name   string
	fd     int // for the calls that os lacks; valid while the file is open
	locked bool
	identity
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

func (f *dirFile) Direct(on bool) bool { return sys.SetDirect(f.fd, on, loghook.BlockSize) }

func (f *dirFile) Uncache() { sys.Uncache(f.fd) }

func (f *dirFile) TryLock() (bool, error) {
	ok, err := sys.TryLock(f.File)
	f.locked = ok && err == nil
	return ok, err
}

// Close unlocks the file before it closes it. A child process that is being started has a
// copy of the descriptor for a moment, which would keep the lock.
func (f *dirFile) Close() error {
	if f.locked {
		_ = sys.Unlock(f.File) // closing does the same
	}
	return f.File.Close()
}

// compare is Check for systems without a cheaper way.
func (f *dirFile) compare() error {
	now, err := f.store.root.Lstat(f.name)
	if err == nil {
		var then fs.FileInfo
		if then, err = f.Stat(); err == nil && !os.SameFile(now, then) {
			err = errMoved
		}
	}
	if err == nil {
		return nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = errMoved
	}
	return &fs.PathError{Op: "check", Path: f.store.Path(f.name), Err: err}
}

// noSpace reports whether an error means that the disk or the quota is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// writeFull is WriteAt that returns an error for a short write.
func writeFull(f segmentFile, p []byte, off int64) error {
	n, err := f.WriteAt(p, off)
	if err == nil && n < len(p) {
		err = fmt.Errorf("appendlog: wrote %d of %d bytes: %w", n, len(p), io.ErrShortWrite)
	}
	return err
}

// writeNew writes a file durably and closes it, because some systems cannot rename an
// open file.
func writeNew(st segmentStore, name string, b []byte) error {
	f, err := st.Create(name)
	if err != nil {
		return err
	}
	err = writeFull(f, b, 0)
	if err == nil {
		err = f.Sync(true)
	}
	if cerr := f.Close(); err == nil {
		err = cerr
	}
	return err
}

// identity distinguishes a file from every other file.
type identity struct {
	path       []byte // the name, with a zero byte
	ino        uint64
	major, min uint32
	st         sys.StatxBuf
	settled    int64 // the time of the directory at which the name referred to the file; 0 if unknown
	again      int64 // until then the directory's time is not asked for
}

// identify notes the identity of an open file.
func (f *dirFile) identify() error {
	f.path = append([]byte(f.name), 0)
	if err := sys.StatxAt(f.fd, &[]byte{0}[0], sys.AtEmptyPath, sys.StatxIno, &f.st); err != nil {
		f.ino = 0 // compare works everywhere
		return nil
	}
	f.ino, f.major, f.min = f.st.Ino, f.st.Dev_major, f.st.Dev_minor
	return nil
}

// settles is the time after which another change of a directory has another time: more than a
// tick of the clock from which the kernel takes it.
const settles = int64(100 * time.Millisecond)

// Check returns an error if the file's name no longer refers to this file. It does
// not allocate, because it is called for each group. A look at the directory's time takes half as
// long as one at the name, and is enough while that time stays the same.
func (f *dirFile) Check() error {
	now, changed := time.Now().UnixNano(), int64(0)
	if now >= f.again {
		if changed = f.store.changed(&f.st); changed != 0 && changed == f.settled {
			return nil
		}
		if f.again, f.settled = changed+settles, 0; changed == 0 {
			f.again = math.MaxInt64
		}
	}
	if f.ino == 0 || sys.StatxAt(f.store.fd, &f.path[0], sys.AtNoFollow, sys.StatxIno, &f.st) != nil ||
		f.st.Ino != f.ino || f.st.Dev_major != f.major || f.st.Dev_minor != f.min {
		return f.compare()
	}
	if changed != 0 && f.again < now {
		f.settled = changed
	}
	return nil
}

// changed returns the time of the last change of an entry of the directory, in nanoseconds, or 0 if
// the directory's times do not tell.
func (s *dirStore) changed(st *sys.StatxBuf) int64 {
	if !s.dated || sys.StatxAt(s.fd, &s.empty[0], sys.AtEmptyPath, sys.StatxCtime, st) != nil || st.Ctime.Nsec == 0 {
		return 0 // whole seconds do not
	}
	return st.Ctime.Sec*1e9 + int64(st.Ctime.Nsec)
}

// pathError returns an error with the path of the log.
func (l *Log) pathError(op string, err error) error {
	return &fs.PathError{Op: op, Path: l.store.Path(l.opts.Prefix), Err: err}
}
