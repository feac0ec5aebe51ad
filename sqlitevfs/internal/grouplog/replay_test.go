// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// oneWAL makes a log with n commits of two pages to one WAL, and crashes.
func oneWAL(t *testing.T, n int) (dir string, w *testWAL) {
	t.Helper()
	needLocks(t)
	dir = t.TempDir()
	l, _ := mustOpen(t, dir, small())
	w = newTestWAL(t, dir, "db")
	w.attach(l)
	for range n {
		if err := w.commit(2); err != nil {
			t.Fatal(err)
		}
	}
	crash(l)
	return dir, w
}

func reopen(t *testing.T, dir string) Report {
	t.Helper()
	l, r := mustOpen(t, dir, Options{})
	mustClose(t, l)
	return r
}

// TestOlderLife: the WAL was restarted after it was synced and checkpointed.
func TestOlderLife(t *testing.T) {
	dir, w := oneWAL(t, 5)
	w.restart()
	w.append(1)
	if r := reopen(t, dir); r.Foreign != 5 || r.Written != 0 || w.holds() != 1 {
		t.Errorf("%+v", r)
	}
}

// TestOtherFile: the WAL was copied, and is another file with the same salts.
func TestOtherFile(t *testing.T) {
	dir, w := oneWAL(t, 5)
	w.lose(2)
	p, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(w.path+".copy", p, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.path+".copy", w.path); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, dir); r.Applied != 3 || w.holds() != 5 {
		t.Errorf("%+v", r)
	}
}

// TestMissing: the WAL, the database, or both are missing.
func TestMissing(t *testing.T) {
	for _, suffix := range []string{"", "-wal"} {
		dir, _ := oneWAL(t, 3)
		if err := os.Remove(filepath.Join(dir, "db"+suffix)); err != nil {
			t.Fatal(err)
		}
		if r := reopen(t, dir); r.Missing != 3 || r.Written != 0 {
			t.Errorf("without db%s: %+v", suffix, r)
		}
	}
}

// TestTruncatedWAL: a checkpoint with TRUNCATE leaves no header.
func TestTruncatedWAL(t *testing.T) {
	dir, w := oneWAL(t, 3)
	if err := w.file.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, dir); r.Old != 3 || r.Written != 0 {
		t.Errorf("%+v", r)
	}
}

// TestSuperseded: SQLite opened the database before the recovery, found the first two
// commits, and continued from there.
func TestSuperseded(t *testing.T) {
	dir, w := oneWAL(t, 5)
	w.lose(2)
	two := w.commits[:2]
	w.sum, w.off = sumAfter(w, two)
	w.commits, w.acked = two[:2:2], 2
	w.append(2)
	if r := reopen(t, dir); r.Present != 2 || r.Superseded != 1 || r.Invalid != 2 || r.Written != 0 || w.holds() != 3 {
		t.Errorf("%+v, holds %d", r, w.holds())
	}
}

func sumAfter(w *testWAL, commits [][]byte) (sum checksum, off int64) {
	sum, off = w.parsed.sum, walHeaderSize
	for _, c := range commits {
		sum, off = sumOf(c[len(c)-int(w.parsed.frame()):]), off+int64(len(c))
	}
	return sum, off
}

// TestGivenUp: SQLite failed after the third commit was durable and wrote another in its
// place, which the log accepted. (Commit syncs the WAL instead: TestRewritten.) The WAL may
// have the one, the other, or neither.
func TestGivenUp(t *testing.T) {
	needLocks(t)
	for _, have := range []string{"none", "given up", "new", "torn"} {
		dir := t.TempDir()
		l, _ := mustOpen(t, dir, small())
		w := newTestWAL(t, dir, "db")
		w.attach(l)
		for range 3 {
			if err := w.commit(2); err != nil {
				t.Fatal(err)
			}
		}
		third := w.commits[2]
		w.commits = w.commits[:2:2]
		w.sum, w.off = sumAfter(w, w.commits)
		w.wal.SyncedTo(w.parsed, w.off)
		for _, pages := range []int{3, 1} {
			if err := w.commit(pages); err != nil {
				t.Fatal(err)
			}
		}
		crash(l)
		at := int64(walHeaderSize + len(w.commits[0]) + len(w.commits[1]))
		switch have {
		case "none":
			w.lose(2)
		case "given up":
			w.lose(2)
			w.file.WriteAt(third, at)
		case "torn":
			w.file.WriteAt(third[:700], at)
		}
		r := reopen(t, dir)
		if w.holds() != 4 {
			t.Errorf("%s: %d commits, %+v", have, w.holds(), r)
		}
	}
}

// TestRewritten commits frames that do not continue the durable part: after a commit that
// SQLite discarded, after frames that were never synced, and in a generation of the WAL
// whose header was not synced. Each must be made durable by a sync of the WAL.
// Promise: sqlitevfs/log-commits-connection
func TestRewritten(t *testing.T) {
	needLocks(t)
	for _, k := range []struct {
		name    string
		prepare func(w *testWAL)
	}{
		{"given up, shorter", func(w *testWAL) { giveUp(w); w.append(1) }},
		{"given up, as long", func(w *testWAL) { giveUp(w); w.append(2) }},
		{"given up, longer", func(w *testWAL) { giveUp(w); w.append(3) }},
		{"frames of others", func(w *testWAL) { w.append(2) }},
		{"another generation", func(w *testWAL) { w.restart() }},
	} {
		dir := t.TempDir()
		fsys := newCutFS()
		o := small()
		o.FS = fsys
		l, _ := mustOpen(t, dir, o)
		w := newTestWAL(t, dir, "db")
		w.attach(l)
		for range 3 {
			if err := w.commit(2); err != nil {
				t.Fatal(err)
			}
		}
		k.prepare(w)
		for range 3 {
			if err := w.commit(1); err != nil {
				t.Fatal(err)
			}
		}
		if s := l.Stats(); s.Commits != 3+2 || s.Large != 1 {
			t.Errorf("%s: %+v", k.name, s)
		}
		crash(l)
		fsys.cut(t, w.path)
		r := reopen(t, dir)
		if w.check(); t.Failed() {
			t.Fatalf("%s: %+v", k.name, r)
		}
	}
}

// giveUp makes the WAL continue where its last commit began.
func giveUp(w *testWAL) {
	w.commits = w.commits[:len(w.commits)-1]
	w.acked = len(w.commits)
	w.sum, w.off = sumAfter(w, w.commits)
}

// TestRolledBack: frames of a transaction that was rolled back are where a commit should
// be.
func TestRolledBack(t *testing.T) {
	dir, w := oneWAL(t, 3)
	w.lose(2)
	sum, off := sumAfter(w, w.commits[:2])
	w.sum = sum
	frames, _ := w.transaction(3)
	if _, err := w.file.WriteAt(frames[:2*w.parsed.frame()], off); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, dir); w.holds() != 3 || r.Applied != 1 {
		t.Errorf("%+v", r)
	}
}

// TestBusy: a database whose WAL lacks commits is in use.
func TestBusy(t *testing.T) {
	dir, _ := oneWAL(t, 3)
	f, err := disk.OS.Open(filepath.Join(dir, "db"), 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if ok, err := f.TryLock(lockStart+10, 1); !ok {
		t.Fatal(err)
	}
	if r := reopen(t, dir); r.Present != 3 {
		t.Errorf("Recover wrote nothing: %+v", r)
	}
	f.Close()

	dir, w := oneWAL(t, 3)
	w.lose(1)
	if f, err = disk.OS.Open(filepath.Join(dir, "db"), 0, 0); err != nil {
		t.Fatal(err)
	}
	if ok, err := f.TryLock(lockStart+10, 1); !ok {
		t.Fatal(err)
	}
	if _, _, err := Open(dir, Options{}); !errors.Is(err, ErrBusy) {
		t.Error("busy:", err)
	}
	f.Close()
	if r := reopen(t, dir); r.Applied != 2 || w.holds() != 3 {
		t.Errorf("%+v", r)
	}
}

// damage changes one byte of the log's file.
func damage(t *testing.T, dir string, off int64) {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(dir, defaultName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	p := make([]byte, 1)
	if _, err := f.ReadAt(p, off); err != nil {
		t.Fatal(err)
	}
	p[0] ^= 0x40
	if _, err := f.WriteAt(p, off); err != nil {
		t.Fatal(err)
	}
}

// TestTorn damages the last batch at every offset: it is dropped as a whole, and earlier
// batches stay.
func TestTorn(t *testing.T) {
	dir, w := oneWAL(t, 4)
	path := filepath.Join(dir, defaultName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	last := int64(firstBatch + 3*block)
	size := batchHeaderSize + recordSize("db-wal", len(w.commits[3]))
	for off := int64(0); off < size; off += 1 + rand.Int64N(9) {
		w.lose(0)
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		damage(t, dir, last+off)
		if r := reopen(t, dir); w.holds() != 3 || r.Batches != 3 {
			t.Fatalf("damaged at %d: %d commits, %+v", off, w.holds(), r)
		}
	}
}

// TestDamage damages an acknowledged batch: batches behind it are replayed only on request.
func TestDamage(t *testing.T) {
	dir, w := oneWAL(t, 4)
	w.lose(0)
	damage(t, dir, firstBatch+block+100)
	_, _, err := Open(dir, Options{})
	if c, ok := errors.AsType[*CorruptError](err); !ok {
		t.Fatal("damage in the middle:", err)
	} else {
		t.Log(c)
	}
	l, r := mustOpen(t, dir, Options{Salvage: true})
	if w.holds() != 1 || r.Present != 1 || r.Invalid != 2 || len(r.Damage) != 1 || len(r.Skipped) != 2 {
		t.Errorf("%+v", r)
	}
	mustClose(t, l)
}

// TestHeaderLost: first one copy of the header is damaged, then both.
func TestHeaderLost(t *testing.T) {
	dir, w := oneWAL(t, 4)
	w.lose(0)
	for _, off := range []int64{3, block + 3} {
		dir, w := oneWAL(t, 4)
		w.lose(0)
		damage(t, dir, off)
		if r := reopen(t, dir); r.Applied != 4 || w.holds() != 4 {
			t.Errorf("one header damaged: %+v", r)
		}
	}
	damage(t, dir, 3)
	damage(t, dir, block+3)
	_, _, err := Open(dir, Options{})
	if _, ok := errors.AsType[*CorruptError](err); !ok {
		t.Error("both headers damaged:", err)
	}
}

// TestSalvageWithoutHeader replays the batches of logs whose headers are both damaged, and renames each log to a
// name that is free.
func TestSalvageWithoutHeader(t *testing.T) {
	dir := t.TempDir()
	for i, want := range []string{".salvaged-1", ".salvaged-2"} {
		from, w := oneWAL(t, 4)
		w.lose(0)
		damage(t, from, 3)
		damage(t, from, block+3)
		path := filepath.Join(from, defaultName)
		if i > 0 { // beside the one that was salvaged before
			must(t, os.WriteFile(path+".salvaged-1", nil, 0o600))
		}
		r, aside, err := Salvage(from, Options{})
		if err != nil || r.Applied != 4 || w.holds() != 4 || aside != path+want {
			t.Errorf("%d commits of 4, renamed to %s, %v: %+v", w.holds(), filepath.Base(aside), err, r)
		}
		if _, err := os.Stat(aside); err != nil {
			t.Error(err)
		}
		if _, _, err := Salvage(from, Options{}); !errors.Is(err, fs.ErrNotExist) {
			t.Error("again:", err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, defaultName), make([]byte, 1<<20), 0o600))
	if _, aside, err := Salvage(dir, Options{}); err == nil || aside != "" {
		t.Errorf("a file without a batch was renamed to %q, %v", aside, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestRecover replays without keeping the log open.
func TestRecover(t *testing.T) {
	dir, w := oneWAL(t, 4)
	w.lose(1)
	r, err := Recover(dir, Options{})
	if err != nil || r.Applied != 3 || w.holds() != 4 {
		t.Error(r, err)
	}
	if r, err = Recover(dir, Options{}); err != nil || r.Generation != 0 {
		t.Error("again:", r, err)
	}
	damage(t, dir, 3) // with one copy of the header damaged, the batches are read
	if r, err = Recover(dir, Options{}); err != nil {
		t.Error("with one header:", r, err)
	}
	if _, err = Recover(t.TempDir(), Options{}); !errors.Is(err, fs.ErrNotExist) {
		t.Error("without a log:", err)
	}
}

// TestVersion1 replays a log as the first version of this package wrote it.
func TestVersion1(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	w := newTestWAL(t, dir, "db")
	p := make([]byte, firstBatch+3*minSegment)
	h := fileHeader{id: 7, revision: 2, generation: 5, live: 1, segment: minSegment}
	h.encode(p[h.slot():])
	head := p[h.slot():]
	le.PutUint32(head[8:], 1)
	le.PutUint32(head[60:], crc(head[:60]))
	at := int64(firstBatch)
	for seq := uint64(1); seq <= 3; seq++ {
		frames, off := w.append(2)
		at += int64(copy(p[at:], encodeBatch(batchHeader{id: 7, generation: 5, seq: seq, live: 1, off: at},
			record{path: "db-wal", header: w.parsed, off: off, frames: frames})))
	}
	w.lose(1)
	if err := os.WriteFile(filepath.Join(dir, defaultName), p, 0o600); err != nil {
		t.Fatal(err)
	}
	if r := reopen(t, dir); r.Applied != 2 || r.Present != 1 || w.holds() != 3 {
		t.Errorf("%+v", r)
	}
	// Damage before the newest batch: the batches do not show whose records are lost.
	for range 2 {
		w.lose(1)
		damaged := append([]byte(nil), p...)
		damaged[firstBatch+block+500] ^= 1
		if err := os.WriteFile(filepath.Join(dir, defaultName), damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		if r, err := Recover(dir, Options{}); err != nil || r.Lacks(w.path) == nil || r.Lacks(filepath.Join(dir, "other-wal")) == nil {
			t.Errorf("%+v, %v", r, err)
		}
	}
}

// TestForeignBlocks: batches of another log, and of this log at other positions, are where
// batches could be.
func TestForeignBlocks(t *testing.T) {
	dir, w := oneWAL(t, 3)
	other, _ := oneWAL(t, 9)
	mine, err := os.ReadFile(filepath.Join(dir, defaultName))
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := os.ReadFile(filepath.Join(other, defaultName))
	if err != nil {
		t.Fatal(err)
	}
	copy(mine[firstBatch+3*block:], theirs[firstBatch+3*block:firstBatch+9*block])
	copy(mine[firstBatch+small().SegmentSize:], mine[firstBatch:firstBatch+3*block])
	if err := os.WriteFile(filepath.Join(dir, defaultName), mine, 0o600); err != nil {
		t.Fatal(err)
	}
	w.lose(0)
	if r := reopen(t, dir); r.Batches != 3 || w.holds() != 3 {
		t.Errorf("%+v", r)
	}
}

// TestMoved moves log and databases together.
func TestMoved(t *testing.T) {
	dir, w := oneWAL(t, 3)
	w.lose(0)
	to := filepath.Join(t.TempDir(), "elsewhere")
	if err := os.Rename(dir, to); err != nil {
		t.Fatal(err)
	}
	w.path = filepath.Join(to, "db-wal")
	if r := reopen(t, to); r.Applied != 3 || w.holds() != 3 {
		t.Errorf("%+v", r)
	}
}
