// SPDX-License-Identifier: MIT

package blockdisk

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/ufile/pebblevfs"
)

const (
	leafSize = 4096 // of the databases
	// marker is in one commit of a work with Fail. It does not compress.
	marker = "Zq8-vK3.xW1_uB7"
	// failed is the name of the acknowledgement that a commit has failed.
	failed = "failed"
	// exitFailed is the code of a process that ended because of that.
	exitFailed = 3
)

// failedWorks are the programs of TestFailedDisk. Those of sqlitevfs/internal/powercut have no shared syncs,
// and no file systems below them.
var failedWorks = []struct {
	name string
	work work
}{
	{"group-persist", work{Kind: "sqlite", VFS: "ringside-group", Mode: "PERSIST", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4"}},
	{"group-delete", work{Kind: "sqlite", VFS: "ringside-group", Mode: "DELETE", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4"}},
	{"group-wal", work{Kind: "sqlite", VFS: "ringside-group", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4"}},
	{"group-wal-killed", work{Kind: "sqlite", VFS: "ringside-group", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4", Dies: true}},
	{"group-persist-killed", work{Kind: "sqlite", VFS: "ringside-group", Mode: "PERSIST", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4", Dies: true}},
	{"log-shared-syncs", work{Kind: "sqlite", VFS: "ringside-log", Params: "&groupsync=on", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4"}},
	{"wal-checkpoint", work{Kind: "sqlite", VFS: "ringside", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4", Checkpoint: true}},
	{"group-wal-checkpoint", work{Kind: "sqlite", VFS: "ringside-group", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4", Checkpoint: true}},
	{"group-wal-normal-killed", work{Kind: "sqlite", VFS: "ringside-group", Mode: "WAL", Names: names(6), Levels: []string{"NORMAL", "FULL"}, Commits: 8, Fail: "db2 4", Dies: true}},
	{"wal-passive-killed", work{Kind: "sqlite", VFS: "ringside", Mode: "WAL", Names: names(6), Levels: []string{"FULL"}, Commits: 8, Fail: "db2 4", Dies: true, Passive: true}},
	{"appendlog", work{Kind: "appendlog", Names: names(4), Commits: 60, Fail: "db2 30"}},
	{"appendlog-killed", work{Kind: "appendlog", Names: names(4), Commits: 60, Fail: "db2 30", Dies: true}},
	{"pebble", work{Kind: "pebble", Names: names(4), Commits: 60, Fail: "db2 30"}},
}

// briefFailed are those that run without -states: CI's powercuts have all.
var briefFailed = []string{"group-persist", "group-wal-killed", "wal-passive-killed", "appendlog-killed", "pebble"}

// TestFailedDisk lets one write to the device fail: the kernel drops what it could not write, and the page cache
// is ahead of the disk. The program gets the error, opens its files again, and is acknowledged more commits. A power
// cut takes none of those that were acknowledged before or after.
// Promise: sqlitevfs/failed-disk-reopened
// Promise: ufile/pebblevfs-returns-results
func TestFailedDisk(t *testing.T) {
	for _, fs := range selected("ext4", "xfs") {
		switch {
		case fs.Repair != nil, fs.Name == "ext4-journal":
			continue // a file system without a journal loses synced files; one with data in it ends
		case *states > 0 && *states < 20 && fs.Name != "ext4" && fs.Name != "xfs":
			continue // CI's share
		}
		t.Run(fs.Name, func(t *testing.T) {
			for _, k := range failedWorks {
				if *states == 0 && *only == "" && (!slices.Contains(briefFailed, k.name) || fs.Name == "xfs" && k.work.Kind == "sqlite") {
					continue
				}
				t.Run(k.name, func(t *testing.T) {
					tr := newTrial(t, fs)
					w, r := tr.recordFailure(t, k.work)
					if f := tr.explore(t, w, r, many(6)); f != nil {
						tr.report(t, f, r)
					}
				})
			}
		})
	}
}

// recordFailure is record with a disk that fails to write the work's marker, once.
func (tr *trial) recordFailure(t *testing.T, w work) (work, *Record) {
	t.Helper()
	if err := tr.fs.Mount(tr.disk, tr.mount); err != nil {
		t.Skip(err)
	}
	w.Dir, w.Seed = tr.mount, tr.seed
	var once sync.Once
	tr.disk.FailWrites(func(p []byte) (err error) {
		if holds(p, w.Checkpoint) {
			once.Do(func() { err = unix.EIO })
		}
		return err
	})
	tr.disk.Start()
	err := start(t, "work").record(tr.disk, w)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && (exit.ExitCode() == exitFailed || w.Kind == "pebble" && exit.ExitCode() == exitCrashed) {
		tr.disk.Note(ack{failed, 1})
		w.Fail, w.Exists = "", true
		err = start(t, "work").record(tr.disk, w)
	}
	tr.disk.FailWrites(nil)
	r := tr.disk.Stop()
	r.Whole = tr.fs.Whole
	if err = errors.Join(err, Unmount(tr.mount)); err != nil {
		t.Fatal(err)
	}
	told := false
	for _, op := range r.Ops {
		told = told || op.Note == ack{failed, 1}
	}
	if !told {
		t.Fatal("no commit has failed: the program was not told of the write that did")
	}
	return w, r
}

// holds reports whether a write has the marker. page restricts that to leaf pages of a database: those in a WAL do not
// begin with a block. A write may be shorter than a page.
func holds(p []byte, page bool) bool {
	if !page {
		return bytes.Contains(p, []byte(marker))
	}
	for ; len(p) >= leafSize; p = p[leafSize:] {
		if p[0] == 13 && bytes.Contains(p[:leafSize], []byte(marker)) {
			return true
		}
	}
	return false
}

// exitCrashed is the code of a Go program that crashed. pebble panics where a WAL that it is about to
// replace fails, and unlocks a mutex twice then.
const exitCrashed = 2

// fatal is a logger of pebble that ends the process, as its own does.
type fatal struct{}

func (fatal) Infof(string, ...any)  {}
func (fatal) Errorf(string, ...any) {}
func (fatal) Fatalf(string, ...any) { os.Exit(exitFailed) }

func (w work) pebble() (*pebble.DB, error) {
	return pebble.Open(w.path("pebble"), &pebble.Options{FS: pebblevfs.New(nil), Logger: fatal{}, MemTableSize: 64 << 10})
}

func pebbleKey(name string, n int) []byte { return fmt.Appendf(nil, "%s %08d", name, n) }

// runPebble makes Commits for each name, behind those that are there.
func (w work) runPebble(acked func(name string, n int)) (err error) {
	db, err := w.pebble()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	var wg sync.WaitGroup
	errs := make([]error, len(w.Names))
	for i, name := range w.Names {
		n, err := pebbleLast(db, name)
		if err != nil {
			return err
		}
		wg.Go(func() {
			for end := n + w.Commits; n < end; acked(name, n) {
				n++
				value := bytes.Repeat(pebbleKey(name, n), 100)
				if w.Fail == fmt.Sprint(name, " ", n) {
					value = append(value, marker...)
				}
				if errs[i] = db.Set(pebbleKey(name, n), value, pebble.Sync); errs[i] != nil {
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// pebbleLast returns the number of the last commit of a name. All before it must be there.
func pebbleLast(db *pebble.DB, name string) (int, error) {
	for n := 1; ; n++ {
		value, closer, err := db.Get(pebbleKey(name, n))
		if errors.Is(err, pebble.ErrNotFound) {
			return n - 1, nil
		}
		if err != nil {
			return 0, err
		}
		if !bytes.HasPrefix(value, bytes.Repeat(pebbleKey(name, n), 100)) {
			return 0, fmt.Errorf("commit %d of %s has wrong bytes", n, name)
		}
		if err := closer.Close(); err != nil {
			return 0, err
		}
	}
}

func (w work) judgePebble(q question) (err error) {
	if _, err := os.Stat(w.path("pebble")); err != nil && len(q.Acked) == 0 {
		return nil
	}
	db, err := w.pebble()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	for _, name := range w.Names {
		last, err := pebbleLast(db, name)
		if err != nil {
			return err
		}
		if last < q.Acked[name] {
			return fmt.Errorf("commit %d of %s was acknowledged, the last that is there is %d", q.Acked[name], name, last)
		}
	}
	return nil
}

// TestWrittenAgain: a write behind the end of a file fails, and the same bytes are written and synced again. On ext4 they
// are lost: the kernel believes that the blocks, which were allocated without content, have been written. Cutting the
// file at its old end first makes it forget that. Package sqlitevfs does so with a WAL.
// Promise: sqlitevfs/failed-disk-reopened
func TestWrittenAgain(t *testing.T) {
	for _, fs := range selected("ext4", "xfs") {
		if fs.Repair != nil || fs.Name == "ext4-journal" {
			continue
		}
		for _, cut := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/cut=%v", fs.Name, cut), func(t *testing.T) {
				tr := newTrial(t, fs)
				lost := tr.writtenAgain(t, cut)
				t.Logf("lost: %v", lost)
				if lost && cut {
					t.Error("synced bytes are lost")
				}
			})
		}
	}
}

// writtenAgain reports whether bytes that were written and synced again are lost.
func (tr *trial) writtenAgain(t *testing.T, cut bool) (lost bool) {
	t.Helper()
	name := filepath.Join(tr.mount, "file")
	good, again := bytes.Repeat([]byte("good"), 1024), append(bytes.Repeat([]byte("x"), 3*4096), marker...)
	if err := tr.fs.Mount(tr.disk, tr.mount); err != nil {
		t.Skip(err)
	}
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err == nil {
		_, err = f.Write(good)
	}
	if err = errors.Join(err, f.Sync(), syncDirectory(tr.mount)); err != nil {
		t.Fatal(err)
	}
	tr.disk.FailWrites(func(p []byte) error {
		if bytes.Contains(p, []byte(marker)) {
			return unix.EIO
		}
		return nil
	})
	_, _ = f.WriteAt(again, int64(len(good)))
	if f.Sync() == nil {
		t.Error("the sync has not failed")
	}
	tr.disk.FailWrites(nil)
	if cut {
		err = f.Truncate(int64(len(good)))
	}
	_, werr := f.WriteAt(again, int64(len(good)))
	if err = errors.Join(err, werr, f.Sync(), f.Close(), Unmount(tr.mount)); err != nil {
		t.Fatal(err)
	}
	if err := tr.fs.Mount(tr.disk, tr.mount); err != nil {
		t.Fatal(err)
	}
	defer Unmount(tr.mount)
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return !bytes.Equal(got, append(good, again...))
}
