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
	"strings"
	"sync"
	"syscall"
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
var failedWorks = slices.Concat(failing, killedWithin())

type failedWork struct {
	name string
	work work
}

var failing = []failedWork{
	{"group-persist", work{VFS: "ringside-group", Mode: "PERSIST"}},
	{"group-delete", work{VFS: "ringside-group", Mode: "DELETE"}},
	{"persist-journal", work{VFS: "ringside", Mode: "PERSIST", Journal: true}},
	{"group-delete-journal", work{VFS: "ringside-group", Mode: "DELETE", Journal: true}},
	{"group-wal", work{VFS: "ringside-group", Mode: "WAL"}},
	{"group-wal-killed", work{VFS: "ringside-group", Mode: "WAL", Dies: true}},
	{"group-persist-killed", work{VFS: "ringside-group", Mode: "PERSIST", Dies: true}},
	{"log", work{VFS: "ringside-log", Mode: "WAL"}},
	{"log-shared-syncs", work{VFS: "ringside-log", Params: "&groupsync=on", Mode: "WAL"}},
	{"wal-checkpoint", work{VFS: "ringside", Mode: "WAL", Checkpoint: true}},
	{"group-wal-checkpoint", work{VFS: "ringside-group", Mode: "WAL", Checkpoint: true}},
	{"group-wal-normal-killed", work{VFS: "ringside-group", Mode: "WAL", Levels: []string{"NORMAL", "FULL"}, Dies: true}},
	{"wal-passive-killed", work{VFS: "ringside", Mode: "WAL", Dies: true, Passive: true}},
	{"appendlog", work{Kind: "appendlog"}},
	{"appendlog-killed", work{Kind: "appendlog", Dies: true}},
	{"appendlog-grows", work{Kind: "appendlog", Ahead: -1}},
	{"pebble", work{Kind: "pebble"}},
}

// killedWithin returns works whose program is killed while the write fails.
func killedWithin() (works []failedWork) {
	for _, k := range slices.Concat(failing, []failedWork{
		{"wal", work{VFS: "ringside", Mode: "WAL"}},
		{"persist", work{VFS: "ringside", Mode: "PERSIST"}},
		{"delete", work{VFS: "ringside", Mode: "DELETE"}},
		{"truncate", work{VFS: "ringside", Mode: "TRUNCATE"}},
	}) {
		name, killed := strings.CutSuffix(k.name, "-killed")
		if killed && slices.ContainsFunc(failing, func(f failedWork) bool { return f.name == name }) {
			continue
		}
		k.work.Dies, k.work.Within = false, true
		works = append(works, failedWork{name + "-within", k.work})
	}
	return works
}

// complete sets what most of these works have in common.
func (w work) complete() work {
	switch {
	case w.Kind != "":
		w.Names, w.Commits, w.Fail = names(4), 60, "db2 30"
	case w.Journal: // the row of commit 4 is deleted five commits later
		w.Kind, w.Names, w.Commits, w.Fail = "sqlite", names(6), 12, "db2 4"
	default:
		w.Kind, w.Names, w.Commits, w.Fail = "sqlite", names(6), 8, "db2 4"
	}
	if w.Levels == nil {
		w.Levels = []string{"FULL"}
	}
	return w
}

// briefFailed are those that run without -states: CI's powercuts have all.
var briefFailed = []string{"group-persist", "persist-journal", "group-wal-killed", "wal-within", "wal-passive-within", "appendlog-grows", "pebble"}

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
				if *states == 0 && *only == "" && (!slices.Contains(briefFailed, k.name) || fs.Name == "xfs" && k.work.Kind == "") {
					continue
				}
				t.Run(k.name, func(t *testing.T) {
					tr := newTrial(t, fs)
					w, r := tr.recordFailure(t, k.work.complete())
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
	w.Dir, w.Seed = tr.mount, tr.seed
	if *replay != "" {
		return w, replayed(t)
	}
	if err := tr.fs.Mount(tr.disk, tr.mount); err != nil {
		t.Skip(err)
	}
	program := start(t, "work")
	fails := 1 // this write of the marker
	if w.Journal {
		fails = 2
	}
	tr.disk.FailWrites(func(p []byte) error {
		if !holds(p, w.Checkpoint) {
			return nil
		}
		if fails--; fails != 0 {
			return nil
		}
		if w.Within {
			program.cmd.Process.Kill()
		}
		return unix.EIO
	})
	tr.disk.Start()
	err := program.record(tr.disk, w)
	if exit, ok := errors.AsType[*exec.ExitError](err); ok && w.ended(exit) {
		tr.disk.Note(ack{failed, 1})
		w.Fail, w.Exists, w.Dies = "", true, w.Within
		// The kernel may return the error that the killed process did not get to another one: for a WAL that it opened before
		// a connection had recovered it, and on Btrfs for the index of a WAL, once for each file.
		for range 1 + len(w.Names) {
			err = start(t, "work").record(tr.disk, w)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || !w.Within || exit.ExitCode() != exitFailed {
				break
			}
		}
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

// ended reports whether a program ended because of the write that failed.
func (w work) ended(exit *exec.ExitError) bool {
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && w.Within && status.Signal() == syscall.SIGKILL {
		return true
	}
	return exit.ExitCode() == exitFailed || w.Kind == "pebble" && exit.ExitCode() == exitCrashed
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
