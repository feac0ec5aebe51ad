// SPDX-License-Identifier: MIT

package ufile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// The file systems implement the interfaces that the file system of os.DirFS implements,
// and fs.SubFS.
var _, _ interface {
	fs.StatFS
	fs.ReadFileFS
	fs.ReadDirFS
	fs.ReadLinkFS
	fs.SubFS
} = rootFS{}, dirFS{}

// FS returns a file system of the files below the Root, like os.Root.FS. Its files are of
// type *[File], so they implement io.ReaderAt and io.Seeker as well. The file system
// implements fs.StatFS, fs.ReadFileFS, fs.ReadDirFS, fs.ReadLinkFS and fs.SubFS. It works
// until the Root is closed, and may be used concurrently.
func (r *Root) FS() fs.FS { return rootFS{r} }

// DirFS returns a file system of the files below a directory, like os.DirFS; see
// [System.DirFS].
func DirFS(dir string) fs.FS { return defaultSystem().DirFS(dir) }

// DirFS returns a file system of the files below a directory, like os.DirFS. Unlike with
// [Root.FS], symbolic links may lead out of the directory. Its files are of type *[File]
// and belong to this system, so they implement io.ReaderAt and io.Seeker as well. The
// file system implements fs.StatFS, fs.ReadFileFS, fs.ReadDirFS, fs.ReadLinkFS and
// fs.SubFS. It keeps no descriptor open, and may be used concurrently.
func (s *System) DirFS(dir string) fs.FS { return dirFS{os.DirFS(dir).(subless), s, dir} }

// subless is a file system without fs.SubFS. fs.Sub makes its parts, so that their errors
// are those of a part of os.DirFS.
type subless interface {
	fs.StatFS
	fs.ReadFileFS
	fs.ReadDirFS
	fs.ReadLinkFS
}

// subFS returns the file system below a directory of a file system.
func subFS(fsys interface {
	subless
	fs.SubFS
}, dir string) (fs.FS, error) {
	if dir == "." {
		return fsys, nil
	}
	return fs.Sub(struct{ subless }{fsys}, dir)
}

// rootFS is a Root.
type rootFS struct{ r *Root }

// valid returns an error if a name is not a valid name for a file system. On Windows such names
// are separated by slashes too, and a backslash is not a separator.
func valid(op, name string) error {
	if !fs.ValidPath(name) || runtime.GOOS == "windows" && strings.Contains(name, `\`) {
		return &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	return nil
}

func (f rootFS) Open(name string) (fs.File, error) {
	if err := valid("open", name); err != nil {
		return nil, err
	}
	file, err := f.r.Open(name)
	if err != nil {
		return nil, err // not a nil pointer in an interface
	}
	return file, nil
}

func (f rootFS) ReadDir(name string) ([]fs.DirEntry, error) {
	if err := valid("readdir", name); err != nil {
		return nil, err
	}
	file, err := f.r.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	entries, err := file.ReadDir(-1)
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, err
}

func (f rootFS) ReadFile(name string) ([]byte, error) {
	if err := valid("readfile", name); err != nil {
		return nil, err
	}
	return f.r.ReadFile(name)
}

func (f rootFS) ReadLink(name string) (string, error) {
	if err := valid("readlink", name); err != nil {
		return "", err
	}
	return f.r.Readlink(name)
}

func (f rootFS) Stat(name string) (fs.FileInfo, error) {
	if err := valid("stat", name); err != nil {
		return nil, err
	}
	return f.r.Stat(name)
}

func (f rootFS) Lstat(name string) (fs.FileInfo, error) {
	if err := valid("lstat", name); err != nil {
		return nil, err
	}
	return f.r.Lstat(name)
}

func (f rootFS) Sub(dir string) (fs.FS, error) { return subFS(f, dir) }

// dirFS is os.DirFS, except that its files are a File. The methods that return none are
// those of the standard library with which the program is built, whose errors differ
// between releases of Go.
type dirFS struct {
	subless
	sys *System
	dir string
}

// errNoRoot is the error of os for an empty directory name.
var errNoRoot = errors.New("os: DirFS with empty root")

// in returns the path of a name below the directory, or the error that os.DirFS returns.
func (f dirFS) in(op, name string) (string, error) {
	err := errNoRoot
	if f.dir != "" {
		var local string
		if local, err = filepath.Localize(name); err == nil {
			if os.IsPathSeparator(f.dir[len(f.dir)-1]) {
				return f.dir + local, nil
			}
			return f.dir + string(os.PathSeparator) + local, nil
		}
		err = fs.ErrInvalid
	}
	return "", &fs.PathError{Op: op, Path: name, Err: err}
}

func (f dirFS) Open(name string) (fs.File, error) {
	full, err := f.in("open", name)
	if err != nil {
		return nil, err
	}
	file, err := f.sys.Open(full)
	if err != nil {
		return nil, renamed(err, name) // not a nil pointer in an interface
	}
	return file, nil
}

func (f dirFS) Sub(dir string) (fs.FS, error) { return subFS(f, dir) }

// renamed sets the path of a PathError to the name that the caller knows. No other code
// holds the error.
func renamed(err error, name string) error {
	if e, ok := err.(*fs.PathError); ok {
		e.Path = name
	}
	return err
}
