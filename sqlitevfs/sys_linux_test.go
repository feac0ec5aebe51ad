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

	"github.com/ringside-io/ringside/internal/sys"
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

// TestReread opens databases whose pages are cached. After a crash those of the files that a failed write may concern
// are read from the disk; a database that was closed stays cached.
func TestReread(t *testing.T) {
	const large = `CREATE TABLE t(x); INSERT INTO t VALUES(1); CREATE TABLE rows(id INTEGER PRIMARY KEY, x);
		WITH RECURSIVE i(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM i WHERE n<1000) INSERT INTO rows SELECT n, zeroblob(3000) FROM i; `
	probe := cachedFile(t, filepath.Join(t.TempDir(), "probe"), make([]byte, 1<<20))
	sys.Uncache(int(probe.Fd()))
	if cachedAt(t, probe, 1<<19) {
		t.Skip("needs a file system that can drop cached pages")
	}
	for _, k := range []struct {
		name, mode, before, within, end string // end of the name of the file that is looked at
		kept                            bool
	}{
		{"wal/crashed", "wal", "PRAGMA wal_checkpoint", "INSERT INTO t VALUES(2)", "", false},
		{"wal/closed", "wal", "PRAGMA wal_checkpoint(TRUNCATE)", "", "", true},
		{"persist/hot", "persist", "", "PRAGMA cache_size=5; BEGIN; INSERT INTO t VALUES(2); UPDATE rows SET x=1 WHERE id<100", "", false},
		{"persist/closed", "persist", "", "", "", true},
		{"persist/closed/journal", "persist", "UPDATE rows SET x=1", "", "-journal", false},
	} {
		t.Run(k.name, func(t *testing.T) {
			path, crashed := dbFile(t), dbFile(t)
			c := connect(t, path, Name)
			execSQL(t, c, "PRAGMA wal_autocheckpoint=0; PRAGMA journal_mode="+k.mode+"; "+large+k.before)
			execSQL(t, c, k.within)
			var looked *os.File
			for _, end := range []string{"", "-wal", "-journal"} {
				if p, err := os.ReadFile(path + end); err == nil && len(p) > 0 {
					if f := cachedFile(t, crashed+end, p); end == k.end {
						looked = f
					}
				}
			}
			const at = 3_000_000
			if !cachedAt(t, looked, at) {
				t.Skip("the kernel has dropped the file already")
			}
			c = connect(t, crashed, Name)
			query(t, c, "SELECT x FROM t")
			if kept := cachedAt(t, looked, at); kept != k.kept {
				t.Errorf("still cached: %v", kept)
			}
			if _, err := looked.ReadAt(make([]byte, 1<<17), at); err != nil {
				t.Fatal(err)
			}
			query(t, c, "SELECT x FROM t")
			query(t, connect(t, crashed, Name), "SELECT x FROM t")
			if !cachedAt(t, looked, at) {
				t.Error("dropped by a later transaction or connection")
			}
		})
	}
}

// cachedFile makes a file with a content, which is on the disk and in the page cache.
func cachedFile(t *testing.T, name string, content []byte) *os.File {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(content); err != nil {
		t.Fatal(err)
	}
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	return f
}

// cachedAt reports whether a byte of a file is in the page cache.
func cachedAt(t *testing.T, f *os.File, off int64) bool {
	t.Helper()
	n, errno := sys.PreadNoWait(int(f.Fd()), make([]byte, 1), off)
	if errno != 0 && errno != unix.EAGAIN {
		t.Skip("needs preadv2 with RWF_NOWAIT: ", errno)
	}
	return n == 1
}
