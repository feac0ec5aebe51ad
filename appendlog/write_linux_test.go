// SPDX-License-Identifier: MIT

package appendlog

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
)

// TestBypassesThePageCache asks the kernel which pages of a segment it has in memory (mincore) after appends, and
// reads the records.
func TestBypassesThePageCache(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	want := numbered("record", 1000)
	put(t, l, want...)
	f, err := os.Open(filepath.Join(dir, segmentName("", 1)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if fs := sys.FileSystem(int(f.Fd())); fs != sys.FSExt4 && fs != sys.FSXFS {
		t.Skipf("needs ext4 or XFS: the file system's type is %#x", fs)
	}
	const pages = 4 // of which the records and their headers take more
	resident, err := sys.Mincore(int(f.Fd()), 0, pages*os.Getpagesize())
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resident[1:] { // the header was read before the first append
		if r&1 != 0 {
			t.Errorf("page %d is in the page cache", i+1)
		}
	}
	if got := contents(t, l); len(got) != len(want) || got[999] != want[999] {
		t.Errorf("%d records", len(got))
	}
}

// TestMovedWhenSettled removes, renames and replaces the segment when Check already relies on the directory's time. The
// next append must fail.
func TestMovedWhenSettled(t *testing.T) {
	type log struct {
		*Log
		path string
	}
	var logs []log
	moves := []func(path string) error{
		os.Remove,
		func(path string) error { return os.Rename(path, path+".moved") },
		func(path string) error {
			return errors.Join(os.WriteFile(path+".x", nil, 0o600), os.Rename(path+".x", path))
		},
		func(path string) error {
			return errors.Join(os.WriteFile(path+".x", nil, 0o600), unix.Renameat2(unix.AT_FDCWD, path, unix.AT_FDCWD, path+".x", unix.RENAME_EXCHANGE))
		},
	}
	for range 4 * len(moves) {
		dir := t.TempDir()
		l, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if !l.store.(*dirStore).dated {
			t.Skipf("needs ext4, XFS or Btrfs: the file system's type is %#x", sys.FileSystem(l.store.(*dirStore).fd))
		}
		logs = append(logs, log{l, filepath.Join(dir, segmentName("", 1))})
	}
	for i, l := range logs {
		for l.file.(*dirFile).settled == 0 { // until the directory's time is old enough
			put(t, l.Log, "record")
		}
		put(t, l.Log, "record")
		if err := moves[i%len(moves)](l.path); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Append([]byte("lost")); !errors.Is(err, errMoved) {
			t.Errorf("move %d: %v", i%len(moves), err)
		}
	}
}
