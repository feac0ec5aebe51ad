// SPDX-License-Identifier: MIT

package grouplog

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// TestCreateTogether creates a log concurrently, after a crash of another attempt. One attempt must
// succeed.
func TestCreateTogether(t *testing.T) {
	needLocks(t)
	for range 20 {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, defaultName+".new"), make([]byte, 70_000), 0o600); err != nil {
			t.Fatal(err)
		}
		logs := make([]*Log, 8)
		var wg sync.WaitGroup
		for i := range logs {
			wg.Go(func() {
				l, _, err := Open(dir, small())
				if err != nil && !errors.Is(err, ErrInUse) {
					t.Error(err)
				}
				logs[i] = l
			})
		}
		wg.Wait()
		n := 0
		for _, l := range logs {
			if l != nil {
				n++
				mustClose(t, l)
			}
		}
		if n > 1 {
			t.Errorf("%d attempts opened the log, want 1", n)
		}
		l, _ := mustOpen(t, dir, small())
		mustClose(t, l)
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Error("left behind:", entries)
		}
	}
}

// TestReplayIsWaitedFor opens a log while it is being replayed.
func TestReplayIsWaitedFor(t *testing.T) {
	dir, w := oneWAL(t, 3)
	w.lose(1)
	other := &Log{opts: Options{FS: disk.OS}, path: filepath.Join(dir, defaultName)}
	replayLock, err := other.lockReplay()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		_, err := Recover(dir, Options{})
		done <- err
	}()
	select {
	case err := <-done:
		t.Error("did not wait:", err)
	case <-time.After(20 * time.Millisecond):
	}
	replayLock.Close()
	if err := <-done; err != nil || w.holds() != 3 {
		t.Error(err, w.holds())
	}
	defer func(d time.Duration) { maxWait = d }(maxWait)
	maxWait = 0
	if replayLock, err = other.lockReplay(); err != nil {
		t.Fatal(err)
	}
	defer replayLock.Close()
	if _, err := Recover(dir, Options{}); !errors.Is(err, ErrBusy) {
		t.Error("without maxWait:", err)
	}
}

// TestLocal checks that a log of one directory does not change files outside, whatever the log
// contains.
func TestLocal(t *testing.T) {
	needLocks(t)
	root := t.TempDir()
	dir, elsewhere := filepath.Join(root, "log"), filepath.Join(root, "elsewhere")
	for _, d := range []string{dir, elsewhere, filepath.Join(dir, "below")} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	l, _ := mustOpen(t, dir, small())
	all := []*testWAL{newTestWAL(t, dir, "a"), newTestWAL(t, elsewhere, "b"), newTestWAL(t, filepath.Join(dir, "below"), "c")}
	for _, w := range all {
		w.attach(l)
		if err := w.commit(2); err != nil {
			t.Fatal(err)
		}
	}
	crash(l)
	for _, w := range all {
		w.lose(0)
	}
	local := small()
	local.Local = true
	for range 2 { // Recover leaves the log unchanged
		r, err := Recover(dir, local)
		if err != nil || r.Elsewhere != 2 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if all[0].holds() != 1 || all[1].holds() != 0 || all[2].holds() != 0 {
		t.Error("commits:", all[0].holds(), all[1].holds(), all[2].holds())
	}
	if _, _, err := Open(dir, local); !errors.Is(err, ErrElsewhere) {
		t.Error("Open:", err)
	}
	if _, err := Recover(dir, small()); err != nil {
		t.Fatal(err)
	}
	for i, w := range all {
		if w.holds() != 1 {
			t.Errorf("WAL %d was not replayed", i)
		}
	}
	l, _ = mustOpen(t, dir, local)
	defer mustClose(t, l)
	if _, err := l.Attach(all[1].path); !errors.Is(err, ErrElsewhere) {
		t.Error("Attach:", err)
	}
}

// TestLinks checks that symbolic links are not followed.
func TestLinks(t *testing.T) {
	needLocks(t)
	root := t.TempDir()
	dir, w := oneWAL(t, 3)
	w.lose(1)
	if err := os.Symlink(filepath.Join(dir, defaultName), filepath.Join(root, defaultName)); err != nil {
		t.Fatal(err)
	}
	if _, err := Recover(root, Options{}); err == nil {
		t.Error("a link to a log was followed")
	}
	moved := filepath.Join(root, "moved")
	if err := os.Rename(w.path, moved); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(moved, w.path); err != nil {
		t.Fatal(err)
	}
	if r, err := Recover(dir, Options{}); err != nil || r.Lacks(w.path) == nil {
		t.Error("a link to a WAL was followed:", err)
	}
	if err := os.Rename(moved, w.path); err != nil {
		t.Fatal(err)
	}
	reopen(t, dir)
	if w.holds() != 3 {
		t.Error("commits:", w.holds())
	}
}

// TestLacks asks which commits a WAL lacks; that must change nothing.
func TestLacks(t *testing.T) {
	dir, w := oneWAL(t, 3)
	for keep, want := range []bool{true, true, true, false} {
		w.lose(3)
		reappend(t, w)
		w.lose(keep)
		err := Lacks(dir, w.path, Options{})
		if errors.Is(err, ErrLacks) != want || err != nil && !want || w.holds() != keep {
			t.Errorf("with %d of 3 commits: %v; %d afterwards", keep, err, w.holds())
		}
	}
	if err := Lacks(dir, w.path+"x", Options{}); err != nil {
		t.Error("of no WAL:", err)
	}
	if err := Lacks(t.TempDir(), w.path, Options{}); !os.IsNotExist(err) {
		t.Error("of no log:", err)
	}
}

// reappend writes all commits to the WAL again.
func reappend(t *testing.T, w *testWAL) {
	t.Helper()
	off := int64(walHeaderSize)
	for _, c := range w.commits {
		if _, err := w.file.WriteAt(c, off); err != nil {
			t.Fatal(err)
		}
		off += int64(len(c))
	}
}

// lockFS calls a function after each attempt to lock a byte of a log.
type lockFS struct {
	disk.FS
	tried func(off int64, ok bool)
}

func (f *lockFS) Open(name string, flag disk.Flag, perm fs.FileMode) (disk.File, error) {
	file, err := f.FS.Open(name, flag, perm)
	if err != nil {
		return nil, err
	}
	return &lockFile{file, f}, nil
}

type lockFile struct {
	disk.File
	fs *lockFS
}

func (f *lockFile) TryLock(off, n int64) (bool, error) {
	ok, err := f.File.TryLock(off, n)
	if err == nil {
		f.fs.tried(off, ok)
	}
	return ok, err
}

// TestReplayBesideInspect begins to replay a log at the moment at which Inspect examines whether the log
// is in use. The replay must wait: a log in use has no commits to replay.
func TestReplayBesideInspect(t *testing.T) {
	dir, w := oneWAL(t, 3)
	w.lose(1)
	var begin, wait sync.Once
	waits, replayed := make(chan struct{}), make(chan error, 1)
	replayer := &lockFS{disk.OS, func(off int64, ok bool) {
		if off == replayByte && !ok {
			wait.Do(func() { close(waits) })
		}
	}}
	inspector := &lockFS{disk.OS, func(off int64, ok bool) {
		if off != userByte || !ok {
			return
		}
		begin.Do(func() {
			go func() {
				_, err := Recover(dir, Options{FS: replayer})
				replayed <- err
				wait.Do(func() { close(waits) })
			}()
			<-waits
		})
	}}
	s, err := Inspect(dir, Options{FS: inspector})
	if err != nil || s.InUse {
		t.Errorf("%+v, %v", s, err)
	}
	if err := <-replayed; err != nil {
		t.Error(err)
	}
	w.check()
}
