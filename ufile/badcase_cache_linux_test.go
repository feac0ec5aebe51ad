// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// forgetCached empties the page cache of a file, where the file system has one
// that can be emptied.
func forgetCached(t testing.TB, path string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	if err := unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
		t.Fatal(err)
	}
}
