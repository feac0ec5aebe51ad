// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// manyWALs makes a log with commits of n WALs, several in each batch, simulates a crash,
// and discards the unsynced parts of the WALs.
func manyWALs(t *testing.T, n int) (dir string, all []*testWAL) {
	t.Helper()
	needLocks(t)
	dir = t.TempDir()
	l, _ := mustOpen(t, dir, Options{SegmentSize: 256 << 10})
	all = wals(t, dir, n)
	for _, w := range all {
		w.attach(l)
	}
	for range 6 {
		l.mu.Lock() // until all commits wait
		var wg sync.WaitGroup
		for _, w := range all {
			wg.Go(func() {
				if err := w.commit(2); err != nil {
					t.Error(err)
				}
			})
		}
		l.mu.Unlock()
		wg.Wait()
	}
	crash(l)
	for _, w := range all {
		w.lose(0)
	}
	return dir, all
}

// TestOneCannotBeReplayed checks that an obstacle to one WAL does not affect the others,
// that the log keeps its commits, and that they are replayed as soon as possible.
// Promise: sqlitevfs/database-lack-commits
func TestOneCannotBeReplayed(t *testing.T) {
	refuse := func(op string, errno error) func(t *testing.T, dir string, w *testWAL, fsys *cutFS) func() {
		return func(t *testing.T, dir string, w *testWAL, fsys *cutFS) func() {
			fsys.fail = func(o, name string, _ int64) error {
				if o == op && name == w.path {
					return errno
				}
				return nil
			}
			return func() { fsys.fail = nil }
		}
	}
	move := func(t *testing.T, w *testWAL) {
		if err := os.Rename(w.path, w.path+".moved"); err != nil {
			t.Fatal(err)
		}
	}
	back := func(t *testing.T, w *testWAL) func() {
		return func() {
			if err := errors.Join(os.Remove(w.path), os.Rename(w.path+".moved", w.path)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, k := range []struct {
		name  string
		spoil func(t *testing.T, dir string, w *testWAL, fsys *cutFS) func()
	}{
		{"forbidden", refuse("open", syscall.EACCES)},
		{"cannot be opened", refuse("open", syscall.EIO)},
		{"cannot be read", refuse("read", syscall.EIO)},
		{"cannot be written", refuse("write", syscall.ENOSPC)},
		{"cannot be synced", refuse("sync", syscall.EIO)},
		{"a link", func(t *testing.T, dir string, w *testWAL, _ *cutFS) func() {
			move(t, w)
			if err := os.Symlink(w.path+".moved", w.path); err != nil {
				t.Fatal(err)
			}
			return back(t, w)
		}},
		{"a directory", func(t *testing.T, dir string, w *testWAL, _ *cutFS) func() {
			move(t, w)
			if err := os.Mkdir(w.path, 0o700); err != nil {
				t.Fatal(err)
			}
			return back(t, w)
		}},
		{"in use", func(t *testing.T, dir string, w *testWAL, _ *cutFS) func() {
			db, _ := database(w.path)
			f, err := disk.OS.Open(db, 0, 0)
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := f.TryLock(lockStart+10, 1); !ok {
				t.Fatal(err)
			}
			return func() { f.Close() }
		}},
	} {
		t.Run(k.name, func(t *testing.T) {
			dir, all := manyWALs(t, 4)
			fsys := newCutFS()
			o := Options{FS: fsys}
			restore := k.spoil(t, dir, all[1], fsys)
			for range 2 {
				r, err := Recover(dir, o)
				if err != nil {
					t.Fatal(err)
				}
				for i, w := range all {
					if lacks := r.Lacks(w.path); (lacks != nil) != (i == 1) {
						t.Errorf("WAL %d: %v", i, lacks)
					}
					if i != 1 && w.holds() != 6 {
						t.Errorf("WAL %d holds %d commits: %+v", i, w.holds(), r)
					}
				}
				if _, _, err := Open(dir, o); !errors.Is(err, ErrPending) {
					t.Error("Open:", err)
				}
			}
			restore()
			r, err := Recover(dir, o)
			if err != nil || r.Pending() != nil || all[1].holds() != 6 {
				t.Errorf("afterwards: %+v, %v, %d commits", r, err, all[1].holds())
			}
			if r, err := Recover(dir, o); err != nil || r.Generation != 0 {
				t.Errorf("the log was not emptied: %+v, %v", r, err)
			}
		})
	}
}

// TestFlippedByte damages one byte of the log. WALs whose commits cannot be read must be
// refused, and no others. It is unknown whether the newest batch was acknowledged.
// Promise: sqlitevfs/database-lack-commits
func TestFlippedByte(t *testing.T) {
	dir, all := manyWALs(t, 4)
	path := filepath.Join(dir, defaultName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	end := len(before)
	for end > 0 && before[end-1] == 0 {
		end--
	}
	tries, refused, whole := ringtest.Rounds(300, 100), 0, 0
	if testing.Short() {
		tries = 40
	}
	for range tries {
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		for _, w := range all {
			w.lose(0)
		}
		off := rand.IntN(end)
		damage(t, dir, int64(off))
		r, err := Recover(dir, Options{})
		if err != nil {
			t.Fatalf("byte %d: %v", off, err)
		}
		n, lost := 0, 0
		for _, w := range all {
			if r.Lacks(w.path) != nil {
				n++
			} else if w.holds() < 6 {
				lost++
				// Without an intact header the newest batch is not found.
				newest := firstBatch + int(r.Bytes)
				if w.holds() != 5 || !r.Torn && (off < newest || off >= newest+block) {
					t.Errorf("byte %d: %s holds %d commits and was not refused: %+v", off, w.path, w.holds(), r)
				}
			}
		}
		if (r.Pending() != nil) != (n > 0) {
			t.Errorf("byte %d: %+v", off, r)
		}
		switch {
		case n == 0 && lost == 0:
			whole++
		case n == 1:
			refused++
		}
	}
	if refused < tries/10 { // many bytes are padding
		t.Errorf("of %d bytes, %d affected one WAL, %d none", tries, refused, whole)
	}
}

// TestRenamed replays into WALs that were renamed, copied within the directory,
// and copied with the directory.
// Promise: sqlitevfs/commits-log-replayed
func TestRenamed(t *testing.T) {
	dir, all := manyWALs(t, 3)
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.CopyFS(to, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	rename := func(from, to string) {
		t.Helper()
		for _, suffix := range []string{"", "-wal"} {
			if err := os.Rename(filepath.Join(dir, from+suffix), filepath.Join(dir, to+suffix)); err != nil {
				t.Fatal(err)
			}
		}
	}
	rename("db0", "renamed")
	rename("db1", "db0")
	r, err := Recover(dir, Options{Local: true})
	if err != nil || r.Applied != 18 || len(r.Skipped) != 0 {
		t.Errorf("%+v, %v", r, err)
	}
	all[0].path, all[1].path = filepath.Join(dir, "renamed-wal"), filepath.Join(dir, "db0-wal")
	for i, w := range all {
		if w.holds() != 6 {
			t.Errorf("WAL %d holds %d commits", i, w.holds())
		}
	}
	if r, err = Recover(to, Options{Local: true}); err != nil || r.Applied != 18 {
		t.Errorf("the copy: %+v, %v", r, err)
	}
	for i, w := range all {
		w.path = filepath.Join(to, []string{"db0-wal", "db1-wal", "db2-wal"}[i])
		if w.holds() != 6 {
			t.Errorf("WAL %d of the copy holds %d commits", i, w.holds())
		}
	}
}

// TestSkippedIsReported checks that the report has each commit that cannot be replayed, with
// the reason, and no commit that is in its database.
// Promise: sqlitevfs/commits-log-replayed
func TestSkippedIsReported(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, Options{})
	all := wals(t, dir, 4)
	for _, w := range all {
		w.attach(l)
		for range 3 {
			if err := w.commit(2); err != nil {
				t.Fatal(err)
			}
		}
	}
	// The first WAL is checkpointed and restarted, as SQLite does it, the second is closed
	// and removed, the third is removed, and the fourth is replaced.
	if err := all[0].wal.Sync(); err != nil {
		t.Fatal(err)
	}
	all[0].anew()
	if err := all[3].commit(1); err != nil {
		t.Fatal(err)
	}
	batches := l.Stats().Batches
	if err := all[1].wal.Close(); err != nil {
		t.Fatal(err)
	}
	for l.Stats().Batches == batches { // the report of that
		time.Sleep(time.Millisecond)
	}
	crash(l)
	os.Remove(all[1].path)
	os.Remove(all[2].path)
	all[3].restart()
	r, err := Recover(dir, Options{})
	if err != nil || r.Old != 6 || r.Missing != 3 || r.Foreign != 4 || len(r.Skipped) != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	for i, s := range r.Skipped {
		if want := all[2+i]; s.WAL != want.path || s.Commits != 3+i || s.Why == "" {
			t.Errorf("%+v", s)
		}
	}
}

// TestSamePathTwice replaces a WAL that is attached. The log names WALs by their paths, so it must not
// take commits of the new one, too.
func TestSamePathTwice(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, small())
	defer mustClose(t, l)
	w := wals(t, dir, 1)[0]
	w.attach(l)
	if err := w.commit(1); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(w.path); err != nil {
		t.Fatal(err)
	}
	again := wals(t, dir, 1)[0]
	if wal, err := l.Attach(again.path); !errors.Is(err, ErrClaimed) {
		t.Errorf("attached, although the log has commits of that name: %v, %v", wal, err)
	}
	if err := w.wal.Close(); err != nil {
		t.Fatal(err)
	}
	again.attach(l)
	if err := again.commit(1); err != nil {
		t.Fatal(err)
	}
}
