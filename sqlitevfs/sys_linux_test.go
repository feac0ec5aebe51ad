// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// TestHasMoved writes to a database whose name leads to no file, to another file, and to
// itself again.
func TestHasMoved(t *testing.T) {
	path := dbFile(t)
	away := path + ".away"
	c := connect(t, path, Name)
	execSQL(t, c, "PRAGMA journal_mode=persist; CREATE TABLE t(x)")
	write := func(what string, moved bool) {
		t.Helper()
		err := c.Exec("INSERT INTO t VALUES(1)")
		if moved && !errors.Is(err, sqlite3.READONLY_DBMOVED) || !moved && err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	write("at its name", false)
	must(os.Rename(path, away))
	write("renamed", true)
	must(os.WriteFile(path, nil, 0o666))
	write("replaced", true)
	must(os.Remove(path))
	must(os.Symlink(away, path))
	write("behind a symbolic link", false)
	must(os.Rename(away, path))
	write("at its name again", false)
}

// TestNoTimesAreRead repeats the calls that precede a write, in new files. A write in the
// same tick of the coarse clock as the creation sets a later time if the times of the file
// were read in between, on file systems and kernels that do so at all. Otherwise the write
// does not change the time, unless another file of the system got a later time in that
// tick. So one write without a change is enough.
func TestNoTimesAreRead(t *testing.T) {
	const attempts = 10_000
	for name, look := range map[string]func(f *file, path string) error{
		"HasMoved": func(f *file, path string) error { _, err := f.HasMoved(); return err },
		"Lookup":   func(f *file, path string) error { _, err := disk.OS.Lookup(path); return err },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for i := range attempts {
				path := filepath.Join(dir, strconv.Itoa(i)) // removing a file would set a later time
				created := coarse(t)
				o, err := os.Create(path)
				if err != nil {
					t.Fatal(err)
				}
				f := &file{fd: int(o.Fd()), name: path}
				if err := look(f, path); err != nil {
					t.Fatal(err)
				}
				tick := coarse(t)
				if _, err := o.WriteAt([]byte("x"), 0); err != nil {
					t.Fatal(err)
				}
				var st unix.Stat_t
				if err := unix.Fstat(f.fd, &st); err != nil {
					t.Fatal(err)
				}
				o.Close()
				if created == tick && st.Mtim.Nano() <= tick {
					return
				}
			}
			t.Errorf("each of %d writes changed the time", attempts)
		})
	}
}

// coarse returns the time of the last tick.
func coarse(t *testing.T) int64 {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &now); err != nil {
		t.Fatal(err)
	}
	return now.Nano()
}
