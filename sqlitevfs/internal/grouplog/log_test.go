// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// TestReplay discards the unsynced part of the WALs and restores it from the log.
func TestReplay(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, r := mustOpen(t, dir, Options{SegmentSize: 1 << 20})
	if r.Generation != 0 {
		t.Errorf("a new log reports %+v", r)
	}
	all := wals(t, dir, 3)
	for _, w := range all {
		w.attach(l)
	}
	for i := range 20 {
		for _, w := range all {
			if err := w.commit(1 + i%4); err != nil {
				t.Fatal(err)
			}
		}
	}
	if !all[0].wal.Dirty() {
		t.Error("a WAL with commits is not dirty")
	}
	crash(l)
	all[0].lose(0)
	all[1].lose(7)
	l, r = mustOpen(t, dir, Options{})
	for _, w := range all {
		if n := w.holds(); n != 20 {
			t.Errorf("%d commits, want 20", n)
		}
	}
	if r.Applied != 20+13 || r.Present != 7+20 || r.Records != 60 || r.WALs != 3 {
		t.Errorf("report: %+v", r)
	}
	mustClose(t, l)
	l, r = mustOpen(t, dir, Options{})
	if r.Generation != 0 {
		t.Errorf("a closed log reports %+v", r)
	}
	mustClose(t, l)
}

// TestRecoveryRepeats recovers twice, the second time after a crash before the
// log was reset.
func TestRecoveryRepeats(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, small())
	w := wals(t, dir, 1)[0]
	w.attach(l)
	for range 5 {
		if err := w.commit(2); err != nil {
			t.Fatal(err)
		}
	}
	crash(l)
	path := filepath.Join(dir, defaultName)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, keep := range []int{0, 3, 5} {
		w.lose(keep)
		if err := os.WriteFile(path, before, 0o600); err != nil {
			t.Fatal(err)
		}
		l, r := mustOpen(t, dir, small())
		if w.holds() != 5 || r.Applied != 5-keep || r.Present != keep {
			t.Errorf("with %d commits in the WAL: %d afterwards, %+v", keep, w.holds(), r)
		}
		crash(l)
	}
}

// TestSyncFreesRecords checks that the log keeps no records of a synced WAL.
func TestSyncFreesRecords(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, small())
	w := wals(t, dir, 1)[0]
	w.attach(l)
	for range 200 {
		if err := w.commit(2); err != nil {
			t.Fatal(err)
		}
		if err := w.wal.Sync(); err != nil || w.wal.Dirty() {
			t.Fatal("after Sync:", err, w.wal.Dirty())
		}
	}
	if s := l.Stats(); s.Reclaims != 0 || s.Commits != 200 || s.Segments > minSegments {
		t.Errorf("stats: %+v", s)
	}
	mustClose(t, l)
}

// TestBusyLogGrows checks that one WAL with many commits gets segments of the full size, so that it
// is synced seldom, and that one with few commits does not.
func TestBusyLogGrows(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	o := Options{FirstSegments: minSegment, SegmentSize: 64 * minSegment, Always: true}
	l, _ := mustOpen(t, dir, o)
	w := wals(t, dir, 1)[0]
	w.attach(l)
	commit := func() {
		if err := w.commit(1); err != nil {
			t.Fatal(err)
		}
	}
	for l.Stats().Reclaims < manyReclaims/2 {
		commit()
	}
	if s := l.Stats(); s.Segments != firstSegments {
		t.Errorf("after few commits: %+v", s)
	}
	for l.Stats().Segments == firstSegments {
		commit()
	}
	before := l.Stats()
	for range 256 { // two segments of the full size at most, 85 small ones
		commit()
	}
	if s := l.Stats(); s.Reclaims > before.Reclaims+4 || s.Segments > firstSegments+minSegments {
		t.Errorf("after many commits: %+v, before: %+v", s, before)
	}
	crash(l)
	l, _ = mustOpen(t, dir, o)
	w.check()
	mustClose(t, l)
}

// TestWrap writes several times the log's size to a small log, and resets the WALs to their
// last sync.
func TestWrap(t *testing.T) {
	needLocks(t)
	for _, commits := range []int{10, 37, 100, 333} {
		dir := t.TempDir()
		fsys := newCutFS()
		o := small()
		o.FS = fsys
		l, _ := mustOpen(t, dir, o)
		all := wals(t, dir, 4)
		for _, w := range all {
			w.attach(l)
		}
		for i := range commits {
			for _, w := range all {
				if err := w.commit(1 + i%5); err != nil {
					t.Fatal(err)
				}
			}
		}
		s := l.Stats()
		crash(l)
		for _, w := range all {
			fsys.cut(t, w.path)
		}
		if commits > 100 && s.Reclaims == 0 {
			t.Errorf("no space was reclaimed: %+v", s)
		}
		if s.Segments > 3 {
			t.Errorf("%d segments", s.Segments)
		}
		l, _ = mustOpen(t, dir, o)
		for _, w := range all {
			w.check()
		}
		mustClose(t, l)
	}
}

// TestLargeCommit checks that a commit beyond the log's limits syncs its WAL.
func TestLargeCommit(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	fsys := newCutFS()
	l, _ := mustOpen(t, dir, Options{FS: fsys, MaxRecord: 8 << 10})
	w := wals(t, dir, 1)[0]
	w.attach(l)
	for _, pages := range []int{1, 100, 2} {
		if err := w.commit(pages); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Stats(); s.Large != 1 || s.Commits != 2 {
		t.Errorf("stats: %+v", s)
	}
	if _, err := w.wal.Commit(make([]byte, walHeaderSize), 0, []byte("no frame")); err != nil {
		t.Error("Commit of a write that is not a frame:", err)
	}
	if s := l.Stats(); s.Large != 2 {
		t.Errorf("stats: %+v", s)
	}
	crash(l)
	fsys.cut(t, w.path)
	l, _ = mustOpen(t, dir, Options{})
	w.check()
	mustClose(t, l)
}

// TestExclusive checks that a log has one user and a WAL one log.
func TestExclusive(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, small())
	if _, _, err := Open(dir, small()); !errors.Is(err, ErrInUse) {
		t.Error("the second log:", err)
	}
	other, _ := mustOpen(t, dir, Options{Name: "other", SegmentSize: minSegment})
	w := wals(t, dir, 1)[0]
	w.attach(l)
	if _, err := other.Attach(w.path); !errors.Is(err, ErrClaimed) {
		t.Error("the second claim:", err)
	}
	if err := w.wal.Close(); err != nil {
		t.Error(err)
	}
	if err := w.wal.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("the second Close:", err)
	}
	w.attach(other)
	mustClose(t, other)
	if _, err := w.wal.Commit(w.header, w.off, nil); err == nil {
		t.Error("a commit after Close succeeded")
	}
	mustClose(t, l)
	if _, err := l.Attach(w.path); !errors.Is(err, os.ErrClosed) {
		t.Error("Attach after Close:", err)
	}
	if err := l.Close(); !errors.Is(err, os.ErrClosed) {
		t.Error("the second Close:", err)
	}
}

// TestConcurrent commits from many goroutines, and checks that they form groups.
func TestConcurrent(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	fsys := newCutFS()
	l, _ := mustOpen(t, dir, Options{FS: fsys, SegmentSize: 128 << 10, MaxSize: 512 << 10})
	all := wals(t, dir, 16)
	var wg sync.WaitGroup
	for i, w := range all {
		w.attach(l)
		wg.Go(func() {
			for j := range 60 {
				if err := w.commit(1 + j%3); err != nil {
					t.Error(err)
					return
				}
				if j%20 == i {
					if err := w.wal.Sync(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	s := l.Stats()
	t.Logf("%+v", s)
	if s.Commits != 16*60 || s.Batches >= s.Commits {
		t.Errorf("stats: %+v", s)
	}
	crash(l)
	for _, w := range all {
		fsys.cut(t, w.path)
	}
	l, _ = mustOpen(t, dir, Options{})
	for _, w := range all {
		w.check()
	}
	mustClose(t, l)
}

// TestFullDisk checks that a log that cannot grow reuses its segments.
func TestFullDisk(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	fsys := newCutFS()
	end := firstBatch + int64(firstSegments)*minSegment
	fsys.fail = func(op, name string, off int64) error {
		if op == "write" && off >= end {
			return syscall.ENOSPC
		}
		return nil
	}
	l, _ := mustOpen(t, dir, Options{FS: fsys, SegmentSize: minSegment, MaxSize: 1 << 20})
	w := wals(t, dir, 1)[0]
	w.attach(l)
	for range 100 {
		if err := w.commit(3); err != nil {
			t.Fatal(err)
		}
	}
	if s := l.Stats(); s.Segments != firstSegments || s.Reclaims == 0 {
		t.Errorf("stats: %+v", s)
	}
	crash(l)
	fsys.cut(t, w.path)
	l, _ = mustOpen(t, dir, Options{})
	w.check()
	mustClose(t, l)
}
