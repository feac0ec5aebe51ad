// SPDX-License-Identifier: MIT

package ufile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/ufile"
)

// tree makes files, directories (which end in a slash) and links ("name>target").
func tree(t testing.TB, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		name, target, link := strings.Cut(name, ">")
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o700)
		switch {
		case link:
			err = errors.Join(err, os.Symlink(target, path))
		case strings.HasSuffix(name, "/"):
			err = errors.Join(err, os.MkdirAll(path, 0o700))
		default:
			err = errors.Join(err, os.WriteFile(path, []byte(name), 0o600))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestRenames(t *testing.T) {
	dir := tree(t, "a", "b", "dir/")
	in := func(name string) string { return filepath.Join(dir, name) }
	err := ufile.RenameNoReplace(in("a"), in("b"))
	if e, ok := err.(*os.LinkError); !ok || e.Op != "rename" || e.Old != in("a") || e.New != in("b") || !errors.Is(err, fs.ErrExist) {
		t.Errorf("onto what exists: %v", err)
	}
	if err := ufile.RenameNoReplace(in("a"), in("c")); err != nil {
		t.Error(err)
	}
	if err := ufile.Exchange(in("c"), in("dir")); err != nil {
		t.Error(err)
	}
	if err := ufile.Exchange(in("c"), in("missing")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("with what is not there: %v", err)
	}
	if got, err := os.ReadFile(in("dir")); string(got) != "a" {
		t.Errorf("%q, %v", got, err)
	}
	if info, err := os.Stat(in("c")); err != nil || !info.IsDir() {
		t.Errorf("%v, %v", info, err)
	}
}
