// SPDX-License-Identifier: MIT

package appendlog

import (
	"os"
	"path/filepath"
	"testing"

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
