// SPDX-License-Identifier: MIT

package ufile

import (
	"io"
	"io/fs"
	"os"
	"slices"
	"time"
)

// Root gives access to the files below one directory and to no others. It has the methods
// of os.Root, with the same results and errors. A name that leads out of the directory is
// refused, whether by "..", as an absolute name, or through a symbolic link. Open, Create
// and OpenFile return a [File].
//
// # How names are resolved
//
// On Linux one system call opens a file, and the kernel resolves its name (openat2 with
// RESOLVE_BENEATH). os.Root opens every directory on the way. The call is repeated if a
// directory was moved while the kernel followed ".." out of it. If the kernel refuses a
// name, os.Root is called and its result is returned. Where openat2 is missing (before
// Linux 5.6) or forbidden, os.Root opens all files, and [Root.Backend] returns the
// reason. The limits differ: the kernel follows 40 symbolic links and os.Root 8, and
// os.Root limits the number of "..". All calls are plain system calls in every [Mode]: a
// ring passes them to a worker thread, which costs more.
//
// Magic links, such as those of /proc/self/fd, are never followed.
//
// # Concurrency and closing
//
// All methods may be called concurrently. After Close they fail with os.ErrClosed. Files
// that the Root has opened stay open. Close does not wait for calls in progress. A Root
// that is dropped without Close is closed by the garbage collector.
type Root struct {
	sys *System
	in  tree
}

// tree has the methods of os.Root that a Root uses, and how it opens files.
type tree interface {
	Name() string
	Close() error
	OpenFile(name string, flag int, perm fs.FileMode) (*os.File, error)
	Chmod(name string, mode fs.FileMode) error
	Chown(name string, uid, gid int) error
	Lchown(name string, uid, gid int) error
	Chtimes(name string, atime, mtime time.Time) error
	Mkdir(name string, perm fs.FileMode) error
	MkdirAll(name string, perm fs.FileMode) error
	Readlink(name string) (string, error)
	Remove(name string) error
	RemoveAll(name string) error
	Rename(oldname, newname string) error
	Link(oldname, newname string) error
	Symlink(oldname, newname string) error
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)

	// openRoot is os.Root.OpenRoot.
	openRoot(name string) (tree, error)
	// backend is Root.Backend.
	backend() (name, reason string)
}

// OpenRoot opens a directory, like os.OpenRoot: symbolic links in its name are followed.
func OpenRoot(name string) (*Root, error) { return defaultSystem().OpenRoot(name) }

// OpenRoot opens a directory, like os.OpenRoot: symbolic links in its name are followed.
// Files that are opened below it belong to this system.
func (s *System) OpenRoot(name string) (*Root, error) {
	t, err := openTree(name)
	if err != nil {
		return nil, err
	}
	return &Root{s, t}, nil
}

// Backend returns how names are resolved when a file is opened: "openat2", or "os" for
// os.Root with the reason why openat2 is not used.
func (r *Root) Backend() (name, reason string) { return r.in.backend() }

// Name returns the name that the directory was opened by.
func (r *Root) Name() string { return r.in.Name() }

// Close closes the Root; see [Root].
func (r *Root) Close() error { return r.in.Close() }

// Open opens a file for reading, like os.Root.Open.
func (r *Root) Open(name string) (*File, error) { return r.OpenFile(name, os.O_RDONLY, 0) }

// Create creates or truncates a file, like os.Root.Create.
func (r *Root) Create(name string) (*File, error) {
	return r.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o666)
}

// OpenFile opens a file, like os.Root.OpenFile. flag may include syscall.O_DIRECT.
// Opening a named pipe may wait for its other end. Fd of a File for a named pipe leaves
// it in non-blocking mode.
func (r *Root) OpenFile(name string, flag int, perm fs.FileMode) (*File, error) {
	f, err := r.in.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	u, err := r.sys.newFile(f)
	if err != nil {
		f.Close()
		return nil, err
	}
	u.setFlags(flag)
	return u, nil
}

// OpenRoot opens a directory below this one as a separate Root, like os.Root.OpenRoot.
func (r *Root) OpenRoot(name string) (*Root, error) {
	t, err := r.in.openRoot(name)
	if err != nil {
		return nil, err
	}
	return &Root{r.sys, t}, nil
}

// ReadFile returns the content of a file, like os.Root.ReadFile.
func (r *Root) ReadFile(name string) ([]byte, error) {
	f, err := r.in.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readToEnd(f)
}

// WriteFile writes data to a file, like os.Root.WriteFile. It creates the file if it does
// not exist, and truncates it if it does. The caller may use data again when WriteFile
// returns.
func (r *Root) WriteFile(name string, data []byte, perm fs.FileMode) error {
	f, err := r.in.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, perm)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	return err
}

// Chmod changes the mode, like os.Root.Chmod.
func (r *Root) Chmod(name string, mode fs.FileMode) error { return r.in.Chmod(name, mode) }

// Chown changes the owner, like os.Root.Chown.
func (r *Root) Chown(name string, uid, gid int) error { return r.in.Chown(name, uid, gid) }

// Lchown changes the owner of a file, like os.Root.Lchown. For a symbolic link it changes
// the owner of the link itself.
func (r *Root) Lchown(name string, uid, gid int) error { return r.in.Lchown(name, uid, gid) }

// Chtimes changes the times of the last access and the last change of the data, like
// os.Root.Chtimes. A zero time.Time leaves that time unchanged.
func (r *Root) Chtimes(name string, atime, mtime time.Time) error {
	return r.in.Chtimes(name, atime, mtime)
}

// Mkdir creates a directory, like os.Root.Mkdir.
func (r *Root) Mkdir(name string, perm fs.FileMode) error { return r.in.Mkdir(name, perm) }

// MkdirAll creates a directory and its missing parents, like os.Root.MkdirAll.
func (r *Root) MkdirAll(name string, perm fs.FileMode) error { return r.in.MkdirAll(name, perm) }

// Readlink returns the target of a symbolic link, like os.Root.Readlink.
func (r *Root) Readlink(name string) (string, error) { return r.in.Readlink(name) }

// Remove removes a file or an empty directory, like os.Root.Remove.
func (r *Root) Remove(name string) error { return r.in.Remove(name) }

// RemoveAll removes a file, or a directory with everything in it, like os.Root.RemoveAll.
// It does not follow symbolic links.
func (r *Root) RemoveAll(name string) error { return r.in.RemoveAll(name) }

// Rename renames a file or directory, like os.Root.Rename.
func (r *Root) Rename(oldname, newname string) error { return r.in.Rename(oldname, newname) }

// Link creates another name for a file, like os.Root.Link. It does not follow a symbolic
// link.
func (r *Root) Link(oldname, newname string) error { return r.in.Link(oldname, newname) }

// Symlink creates a symbolic link to oldname, like os.Root.Symlink. The link may point
// outside the Root, but then no call below the Root follows it.
func (r *Root) Symlink(oldname, newname string) error { return r.in.Symlink(oldname, newname) }

// Stat describes the file that a name leads to, like os.Root.Stat.
func (r *Root) Stat(name string) (fs.FileInfo, error) { return r.in.Stat(name) }

// Lstat describes a file, like os.Root.Lstat. It describes a symbolic link itself.
func (r *Root) Lstat(name string) (fs.FileInfo, error) { return r.in.Lstat(name) }

// readToEnd reads a file to its end. Files of /proc have the size 0 and must be
// read in large pieces.
func readToEnd(f *os.File) ([]byte, error) {
	const least = 512
	var size int64
	if info, err := f.Stat(); err == nil && info.Size() < 1<<40 {
		size = info.Size()
	}
	data := make([]byte, 0, max(least, int(size)+1)) // one more, to see the end
	for {
		n, err := f.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		if err == io.EOF {
			return data, nil
		}
		if err != nil {
			return data, err
		}
		if free := cap(data) - len(data); free == 0 || size == 0 && free < least {
			data = slices.Grow(data, least)
		}
	}
}
