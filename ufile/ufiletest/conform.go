// SPDX-License-Identifier: MIT

package ufiletest

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
	"testing/iotest"
)

// conformReader runs the standard library's checks of readers.
func conformReader(t *testing.T, s suite) {
	for _, size := range []int{0, 1, rounds(1000, 300), rounds(30000, 9000)} {
		f := s.openFile(t, file(t, "file", size, 1), os.O_RDONLY)
		if err := iotest.TestReader(f, pattern(size, 1)); err != nil {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

// tree is a file system made of the implementation.
type tree struct {
	root string
	open opener
}

// Open implements fs.FS.
func (d tree) Open(name string) (fs.File, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrInvalid}
	}
	f, err := d.open(filepath.Join(d.root, filepath.FromSlash(name)), os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	return f, nil
}

// conformFS runs the standard library's checks of file systems.
func conformFS(t *testing.T, s suite) {
	root := t.TempDir()
	want := []string{"a.txt", "empty", "sub/b.bin", "sub/deep/c"}
	for i, name := range want {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, pattern(i%2*5000, 1), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := fstest.TestFS(tree{root, s.open}, want...); err != nil {
		t.Error(err)
	}
}
