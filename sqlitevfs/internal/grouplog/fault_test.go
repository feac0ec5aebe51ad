// SPDX-License-Identifier: MIT

package grouplog

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// TestFaults makes each call of a run fail in turn, once or permanently, and crashes: no
// acknowledged commit is lost, by the log or, after its failure, by syncs of the WALs.
// Promise: sqlitevfs/failure-log-wal
func TestFaults(t *testing.T) {
	needLocks(t)
	step := ringtest.Rounds(3, 9)
	if testing.Short() {
		step = 23
	}
	for _, fault := range []struct {
		errno   syscall.Errno
		forever bool
	}{{syscall.EIO, false}, {syscall.EIO, true}, {syscall.ENOSPC, false}, {syscall.ENOSPC, true}} {
		t.Run(fmt.Sprintf("%v-%v", fault.errno, fault.forever), func(t *testing.T) {
			for n := rand.IntN(step); ; n += step {
				if failed := faultAt(t, n, fault.errno, fault.forever); !failed {
					if n < 40 {
						t.Errorf("the run makes only %d calls", n)
					}
					return
				}
			}
		})
	}
}

// faultAt runs a log whose n-th call fails. It reports whether there was such a call.
func faultAt(t *testing.T, n int, errno syscall.Errno, forever bool) (failed bool) {
	t.Helper()
	dir := t.TempDir()
	fsys := newCutFS()
	calls, what := 0, ""
	fsys.fail = func(op, name string, off int64) error {
		calls++
		if calls-1 == n || forever && calls-1 > n {
			what += fmt.Sprintf("%s %s at %d; ", op, name[strings.LastIndexByte(name, '/')+1:], off)
			return errno
		}
		return nil
	}
	o := small()
	o.FS = fsys
	all := wals(t, dir, 2)
	l, _, err := Open(dir, o)
	if err != nil {
		if what == "" {
			t.Fatal(err)
		}
		return true
	}
	for _, w := range all {
		if w.wal, err = l.Attach(w.path); err != nil && !errors.Is(err, errno) {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for i := range 24 {
		for _, w := range all {
			if w.wal == nil {
				continue
			}
			if err := w.commit(4); err != nil && !errors.Is(err, errno) {
				t.Fatalf("%s: commit: %v", what, err)
			}
			if i%10 == 9 && w == all[0] {
				if err := w.wal.Sync(); err != nil && !errors.Is(err, errno) {
					t.Fatalf("%s: sync: %v", what, err)
				}
			}
		}
	}
	crash(l)
	fsys.mu.Lock()
	fsys.fail = nil
	fsys.mu.Unlock()
	for _, w := range all {
		if w.wal != nil {
			fsys.cut(t, w.path)
		}
	}
	l, _, err = Open(dir, o)
	if err != nil {
		t.Fatalf("%s: open: %v", what, err)
	}
	for _, w := range all {
		if w.check(); t.Failed() {
			t.Fatal(what)
		}
	}
	mustClose(t, l)
	return what != ""
}

// TestRecoveryFaults makes each call of a recovery fail in turn: the next recovery finds
// every commit.
func TestRecoveryFaults(t *testing.T) {
	for n := 0; ; n++ {
		dir, w := oneWAL(t, 3)
		w.lose(1)
		fsys := newCutFS()
		calls := 0
		fsys.fail = func(op, name string, off int64) error {
			calls++
			if calls-1 == n {
				return syscall.EIO
			}
			return nil
		}
		l, _, err := Open(dir, Options{FS: fsys})
		if err == nil {
			crash(l)
			if n < 8 {
				t.Errorf("the recovery makes only %d calls", n)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatal(err)
		}
		reopen(t, dir)
		if w.holds() != 3 {
			t.Fatalf("call %d failed: %d commits", n, w.holds())
		}
	}
}

// TestFailedSyncEndsCommits makes a sync of a WAL fail that is not part of a commit.
// Promise: sqlitevfs/disk-error-fails
func TestFailedSyncEndsCommits(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, Options{})
	defer l.Close()
	w := wals(t, dir, 1)[0]
	w.attach(l)
	frames, off := w.append(2)
	if logged, err := w.wal.Commit(w.header, off, frames); !logged || err != nil {
		t.Fatal(logged, err)
	}
	w.wal.file.Close()
	w.wal.reclaim()
	frames, off = w.append(2)
	if logged, err := w.wal.Commit(w.header, off, frames); logged || err == nil {
		t.Errorf("a commit after a failed sync: %v, %v", logged, err)
	}
}

// TestRenewedWAL: when the frames of a WAL were written again after a failed sync, the next sync makes them durable,
// and commits succeed again.
func TestRenewedWAL(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	l, _ := mustOpen(t, dir, Options{})
	w := wals(t, dir, 1)[0]
	w.attach(l)
	must(t, w.commit(2))
	fails := func() error { return syscall.EIO }
	if err := w.wal.SyncBy(fails); !errors.Is(err, syscall.EIO) {
		t.Fatal("a sync that fails:", err)
	}
	if err := w.wal.Sync(); !errors.Is(err, syscall.EIO) {
		t.Error("a sync after one that failed:", err)
	}
	if err := w.commit(2); !errors.Is(err, syscall.EIO) {
		t.Error("a commit after a sync that failed:", err)
	}
	w.wal.Renewed()
	if err := w.wal.Sync(); err != nil {
		t.Error("a sync after the frames were written again:", err)
	}
	w.wal.SyncedTo(w.parsed, w.off)
	if err := w.commit(2); err != nil {
		t.Error("a commit after that:", err)
	}
	crash(l)
	w.lose(2)
	if r := reopen(t, dir); r.Applied != 1 || w.holds() != 3 {
		t.Errorf("%d commits of 3: %+v", w.holds(), r)
	}
}

// dirtyFS is a disk on which writes of WALs have failed: the page cache has the content of a WAL, and the
// disk has other content. A sync writes only what was written through this file system since.
type dirtyFS struct {
	disk.FS
	mu    sync.Mutex
	disk  []byte // of the WAL
	dirty [][2]int64
}

func (f *dirtyFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	file, err := f.FS.Open(name, flag, perm)
	if err != nil || !strings.HasSuffix(name, "-wal") {
		return file, err
	}
	return &dirtyFile{file, f}, nil
}

type dirtyFile struct {
	disk.File
	fs *dirtyFS
}

func (f *dirtyFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	f.fs.dirty = append(f.fs.dirty, [2]int64{off, off + int64(len(p))})
	return f.File.WriteAt(p, off)
}

func (f *dirtyFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	for _, d := range f.fs.dirty {
		if n := d[1] - int64(len(f.fs.disk)); n > 0 {
			f.fs.disk = append(f.fs.disk, make([]byte, n)...)
		}
		if _, err := f.File.ReadAt(f.fs.disk[d[0]:d[1]], d[0]); err != nil {
			return err
		}
	}
	f.fs.dirty = nil
	return nil
}

// TestPresentInThePageCacheOnly replays the log of a process whose WAL could not be synced. The kernel
// reports that once; the page cache then has commits that the disk lacks, and a sync does not write them.
// Promise: sqlitevfs/disk-error-fails
func TestPresentInThePageCacheOnly(t *testing.T) {
	dir, w := oneWAL(t, 3)
	p, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	fsys := &dirtyFS{FS: disk.OS, disk: bytes.Clone(p[:walHeaderSize+100])}
	r, err := Recover(dir, Options{FS: fsys})
	if err != nil || r.Present != 3 {
		t.Fatalf("%+v, %v", r, err)
	}
	if err := os.WriteFile(w.path, fsys.disk, 0o600); err != nil {
		t.Fatal(err)
	}
	w.check()
}

// TestFailedWALIsNotAttachedAgain closes a WAL that could not be synced. Its commits are durable only in
// the log, which must keep them: another life of the same WAL must not declare them to be durable.
// Promise: sqlitevfs/disk-error-fails
func TestFailedWALIsNotAttachedAgain(t *testing.T) {
	needLocks(t)
	dir := t.TempDir()
	fsys := newCutFS()
	o := small()
	o.FS = fsys
	l, _ := mustOpen(t, dir, o)
	all := wals(t, dir, 2)
	w, other := all[0], all[1]
	w.attach(l)
	other.attach(l)
	for range 3 {
		if err := w.commit(1); err != nil {
			t.Fatal(err)
		}
	}
	fsys.fail = func(op, name string, _ int64) error {
		if op == "sync" && name == w.path {
			return syscall.EIO
		}
		return nil
	}
	if err := w.wal.Sync(); err == nil {
		t.Error("the sync did not fail")
	}
	fsys.fail = nil
	w.wal.Close()
	if wal, err := l.Attach(w.path); err == nil {
		w.wal = wal
		wal.SyncedTo(w.parsed, w.off)
		if err := w.commit(1); err != nil {
			t.Fatal(err)
		}
		if err := wal.Sync(); err != nil {
			t.Fatal(err)
		}
		if err := w.commit(1); err != nil {
			t.Fatal(err)
		}
	}
	if err := other.commit(1); err != nil {
		t.Error("another WAL:", err)
	}
	crash(l)
	w.lose(0)
	reopen(t, dir)
	w.check()
}
