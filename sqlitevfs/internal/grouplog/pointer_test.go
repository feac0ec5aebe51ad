// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// realDir returns a temporary directory whose name has no symbolic links.
func realDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// elsewhere makes the directory of a log, and a WAL in a directory below it.
func elsewhere(t *testing.T) (dir string, w *testWAL) {
	t.Helper()
	needLocks(t)
	dir = filepath.Join(realDir(t), "all")
	tenant := filepath.Join(dir, "tenant")
	if err := os.MkdirAll(tenant, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir, newTestWAL(t, tenant, "a")
}

func wantElsewhere(t *testing.T, wal, want string) {
	t.Helper()
	got, err := Elsewhere(wal, Options{})
	if got.Dir != want || err != nil {
		t.Errorf("the log is in %q, %v; want %q", got.Dir, err, want)
	}
	if err := got.Exists(Options{}); err != nil && want != "" {
		t.Error(err)
	}
}

// TestPointer follows a pointer through a crash, a move of the directories, a replay and a
// clean close.
// Promise: sqlitevfs/database-whose-log
func TestPointer(t *testing.T) {
	dir, w := elsewhere(t)
	l, _ := mustOpen(t, dir, small())
	w.attach(l)
	wantElsewhere(t, w.path, dir)
	for range 3 {
		if err := w.commit(1); err != nil {
			t.Fatal(err)
		}
	}
	crash(l)
	w.lose(1)
	moved := filepath.Join(realDir(t), "moved")
	if err := os.Rename(dir, moved); err != nil {
		t.Fatal(err)
	}
	dir, w.path = moved, filepath.Join(moved, "tenant", filepath.Base(w.path))
	wantElsewhere(t, w.path, dir)
	if err := Lacks(dir, w.path, Options{}); !errors.Is(err, ErrLacks) {
		t.Error("the log holds commits that the WAL lacks:", err)
	}
	if _, err := Recover(dir, small()); err != nil {
		t.Fatal(err)
	}
	if n := w.holds(); n != 3 {
		t.Errorf("the WAL has %d commits, want 3", n)
	}
	wantElsewhere(t, w.path, "")
	l, _ = mustOpen(t, dir, small())
	w.attach(l)
	wantElsewhere(t, w.path, dir)
	mustClose(t, l)
	wantElsewhere(t, w.path, "")
}

// TestPointerIsDurable attaches a WAL: its pointer is durable before the log has a record
// of it. If the pointer cannot be written, the WAL gets no log.
// Promise: sqlitevfs/database-whose-log
func TestPointerIsDurable(t *testing.T) {
	dir, w := elsewhere(t)
	fsys := newCutFS()
	o := small()
	o.FS = fsys
	l, _ := mustOpen(t, dir, o)
	defer mustClose(t, l)
	pointer := PointerTo(w.path)
	steps := []string{"open " + pointer + ".new", "write " + pointer + ".new", "sync " + pointer + ".new", "rename " + pointer, "syncdir " + filepath.Dir(pointer), "write " + l.path}
	for i, fails := range steps[:len(steps)-1] {
		fsys.fail = func(op, name string, _ int64) error {
			if op+" "+name == fails {
				return errors.New("injected")
			}
			return nil
		}
		wal, err := l.Attach(w.path)
		if err == nil || !strings.Contains(err.Error(), "injected") {
			t.Errorf("step %d: %v, %v", i, wal, err)
		}
	}
	var seen []string
	fsys.fail = func(op, name string, _ int64) error {
		if step := op + " " + name; slices.Contains(steps, step) {
			seen = append(seen, step)
		}
		return nil
	}
	w.attach(l)
	if err := w.commit(1); err != nil {
		t.Fatal(err)
	}
	fsys.fail = nil
	if !slices.Equal(seen, steps) {
		t.Errorf("the order of steps is\n%q\nwant\n%q", seen, steps)
	}
}

// TestPointerOfAnotherLog replays a log with old records of a WAL that now belongs to
// another log: the pointer stays.
// Promise: sqlitevfs/database-whose-log
func TestPointerOfAnotherLog(t *testing.T) {
	dir, w := elsewhere(t)
	first, _ := mustOpen(t, dir, small())
	w.attach(first)
	if err := w.commit(1); err != nil {
		t.Fatal(err)
	}
	crash(first)
	second := filepath.Join(dir, "second")
	if err := os.Mkdir(second, 0o700); err != nil {
		t.Fatal(err)
	}
	l, _ := mustOpen(t, second, small())
	w.attach(l)
	if _, err := Recover(dir, small()); err != nil {
		t.Fatal(err)
	}
	wantElsewhere(t, w.path, second)
	mustClose(t, l)
	wantElsewhere(t, w.path, "")
}

// Promise: sqlitevfs/database-whose-log
func TestDamagedPointer(t *testing.T) {
	_, w := elsewhere(t)
	whole := Place{"../log", 1}.encode()
	for i := range len(whole) + 1 {
		p := whole[:i]
		if i == len(whole) {
			p = slices.Concat(whole, []byte("/x"))
		}
		if err := os.WriteFile(PointerTo(w.path), p, 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := Elsewhere(w.path, Options{FS: disk.OS}); err == nil {
			t.Errorf("%q names %q", p, at.Dir)
		} else if _, ok := errors.AsType[*CorruptError](err); !ok {
			t.Errorf("%q: %v", p, fmt.Sprint(err))
		}
	}
}

// TestPointerOfEarlierVersion reads a pointer without the identity of the log.
func TestPointerOfEarlierVersion(t *testing.T) {
	dir, w := elsewhere(t)
	l, _ := mustOpen(t, dir, small())
	mustClose(t, l)
	for _, text := range []string{"..", "../a\nb", dir} {
		p := fmt.Appendf(nil, "%s\n%08x\n%s", pointerMagic, owner(text), text)
		if err := os.WriteFile(PointerTo(w.path), p, 0o600); err != nil {
			t.Fatal(err)
		}
		if at, err := Elsewhere(w.path, Options{}); err != nil || at.ID != 0 {
			t.Errorf("%q: %+v, %v", p, at, err)
		}
	}
	wantElsewhere(t, w.path, dir)
}

// TestAbsoluteNames replays a log with absolute names, as version 0.1.0 wrote them, and one of which a batch
// is damaged.
func TestAbsoluteNames(t *testing.T) {
	for _, damaged := range []bool{false, true} {
		root := t.TempDir()
		dir, data := filepath.Join(root, "log"), filepath.Join(root, "data")
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Mkdir(data, 0o700)); err != nil {
			t.Fatal(err)
		}
		needLocks(t)
		l, _ := mustOpen(t, dir, small())
		w := newTestWAL(t, data, "a")
		w.attach(l)
		w.wal.path, w.wal.owner = w.path, owner(w.path)
		for range 3 {
			if err := w.commit(1); err != nil {
				t.Fatal(err)
			}
		}
		crash(l)
		w.lose(0)
		if damaged {
			log := filepath.Join(dir, defaultName)
			p, err := os.ReadFile(log)
			if err != nil {
				t.Fatal(err)
			}
			p[firstBatch+batchHeaderSize+recordHeaderSize+100] ^= 1
			if err := os.WriteFile(log, p, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r, err := Recover(dir, small())
		if err != nil || (r.Lacks(w.path) != nil) != damaged {
			t.Errorf("%+v, %v", r, err)
		}
		if !damaged {
			w.check()
		}
	}
}
