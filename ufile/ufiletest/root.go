// SPDX-License-Identifier: MIT

package ufiletest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"time"
)

// Root has the methods of os.Root, except that OpenFile returns a [File] and OpenRoot a
// Root.
type Root interface {
	Name() string
	Close() error
	OpenFile(name string, flag int, perm fs.FileMode) (File, error)
	OpenRoot(name string) (Root, error)
	FS() fs.FS
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte, perm fs.FileMode) error
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
}

// OSRoot opens a directory of the reference implementation, by os.OpenRoot.
func OSRoot(dir string) (Root, error) {
	r, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	return osRoot{r}, nil
}

type osRoot struct{ *os.Root }

func (r osRoot) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	f, err := r.Root.OpenFile(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return f, nil
}

func (r osRoot) OpenRoot(name string) (Root, error) {
	sub, err := r.Root.OpenRoot(name)
	if err != nil {
		return nil, err
	}
	return osRoot{sub}, nil
}

// RunRoot compares a Root with os.Root, in subtests of t. Each call with each kind of
// name must have the same result, error and effect, and no call may reach a file outside
// the Root. open opens a directory like os.OpenRoot, and must return a nil interface with
// an error. The suite closes every Root.
func RunRoot(t *testing.T, open func(dir string) (Root, error)) {
	t.Helper()
	RunRootPart(t, open, 0, 1)
}

// RunRootPart is [RunRoot] for a part of the work. The combinations of calls and names
// that need a new directory are divided into parts, numbered from 0, and only number part
// is run. With -short there are at least twelve parts.
func RunRootPart(t *testing.T, open func(dir string) (Root, error), part, parts int) {
	t.Helper()
	if testing.Short() {
		parts = max(parts, 12)
	}
	share := share{part, parts}
	for _, test := range []struct {
		name string
		play func(c *rootScript)
	}{
		{"Root/Directory", rootDirectory},
		{"Root/Open", rootOpen},
		{"Root/Look", rootLook},
		{"Root/Change", rootChange},
		{"Root/Two", rootTwo},
		{"Root/Sub", rootSub},
		{"Root/Moved", rootMoved},
		{"Root/Closed", rootClosed},
		{"Root/Files", rootFiles},
	} {
		t.Run(test.name, func(t *testing.T) { compareRoots(t, open, share, test.play) })
	}
	t.Run("Root/FS", func(t *testing.T) {
		dir := fsTree(t)
		r, err := open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		conformTree(t, r.FS())
	})
	t.Run("Root/FSNames", func(t *testing.T) {
		compareFS(t, func(t *testing.T, dir string) fs.FS { return rootFS(t, OSRoot, dir) },
			func(t *testing.T, dir string) fs.FS { return rootFS(t, open, dir) })
	})
}

func rootFS(t *testing.T, open func(dir string) (Root, error), dir string) fs.FS {
	t.Helper()
	r, err := open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	return r.FS()
}

// RunDirFS compares a file system with os.DirFS, in subtests of t. open returns the file
// system of a directory, like os.DirFS.
func RunDirFS(t *testing.T, open func(dir string) fs.FS) {
	t.Helper()
	t.Run("FS", func(t *testing.T) { conformTree(t, open(fsTree(t))) })
	t.Run("FSNames", func(t *testing.T) {
		compareFS(t, func(_ *testing.T, dir string) fs.FS { return os.DirFS(dir) },
			func(_ *testing.T, dir string) fs.FS { return open(dir) })
	})
}

// fsFiles are the files of fsTree.
var fsFiles = []string{"a.txt", "empty", "sub/b.bin", "sub/deep/c"}

// fsTree makes files to be found.
func fsTree(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range fsFiles {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pattern((i+1)%2*5000, 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	needSymlinks(t)
	for name, target := range map[string]string{"link": "a.txt", "sub/up": "../empty", "dirlink": "sub"} {
		if err := os.Symlink(target, filepath.Join(dir, filepath.FromSlash(name))); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// conformTree runs the standard library's checks, also on a part.
func conformTree(t *testing.T, fsys fs.FS) {
	t.Helper()
	if err := fstest.TestFS(fsys, fsFiles...); err != nil {
		t.Error(err)
	}
	sub, err := fs.Sub(fsys, "sub")
	if err != nil {
		t.Fatal(err)
	}
	if err := fstest.TestFS(sub, "b.bin", "deep/c", "up"); err != nil {
		t.Errorf("Sub: %v", err)
	}
}

// needSymlinks skips where symbolic links cannot be made, as on Windows without
// a privilege.
func needSymlinks(t *testing.T) {
	t.Helper()
	if err := os.Symlink("nowhere", filepath.Join(t.TempDir(), "link")); err != nil {
		t.Skipf("needs symbolic links: %v", err)
	}
}
