// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// witness is an observer of one database that notes the commits of its WAL.
type witness struct {
	mu    sync.Mutex
	ends  []int64
	other []string // calls that are not expected
}

// watch observes the database of a path until the test ends.
func watch(t *testing.T, path string) *witness {
	w := &witness{}
	stop, err := Observe(func(p string) Observed {
		if p != path {
			return nil
		}
		return w
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return w
}

func (w *witness) Committed(frame int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ends = append(w.ends, frame)
}

func (w *witness) Changing(checkpoint bool) {
	if !checkpoint {
		w.note("changing")
	}
}

func (w *witness) Restarting(bool) {}
func (w *witness) Changed([]Piece) { w.note("changed") }
func (w *witness) Closed()         {}

func (w *witness) note(call string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.other = append(w.other, call)
}

func (w *witness) told() []int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]int64(nil), w.ends...)
}

// TestCommitsAreTold: the observer knows of each commit once, when the statement that commits returns and not before the
// sync that makes it durable has ended. It does not know of a commit that failed.
//
// Promise: sqlitevfs/backup-restores-committed
func TestCommitsAreTold(t *testing.T) {
	for _, lock := range []string{"normal", "exclusive"} {
		for _, synchronous := range []string{"off", "normal", "full"} {
			t.Run(lock+"-"+synchronous, func(t *testing.T) { judgeTold(t, lock, synchronous) })
		}
	}
}

func judgeTold(t *testing.T, lock, synchronous string) {
	name, r := record(t, Options{})
	path := dbFile(t)
	w := watch(t, path)
	db := connect(t, path, name)
	execSQL(t, db, fmt.Sprintf("PRAGMA locking_mode=%s; PRAGMA journal_mode=wal; PRAGMA synchronous=%s; PRAGMA wal_autocheckpoint=0", lock, synchronous))
	w.other = nil // journal_mode=wal is a transaction of a rollback mode
	var commits []int64
	refused := ""
	r.fail = func(event string) error { // in a call of SQLite
		if event == refused {
			return syscall.EIO
		}
		if got := w.told(); strings.HasSuffix(event, " wal") && len(got) != len(commits) {
			t.Errorf("%s: %d commits were told before it, want %d", event, len(got), len(commits))
		}
		return nil
	}
	judge := func(after string) {
		t.Helper()
		if got := w.told(); fmt.Sprint(got) != fmt.Sprint(commits) || len(w.other) > 0 {
			t.Fatalf("after %s: told %v, want %v; %v", after, got, commits, w.other)
		}
	}
	committed := func() { // the last frame of the WAL ends a commit
		t.Helper()
		commits = append(commits, fileSize(t, path+suffixWAL)-frameHeaderSize-4096)
	}
	for _, sql := range []string{"CREATE TABLE t(x)", "INSERT INTO t VALUES(1)", "BEGIN; DELETE FROM t; INSERT INTO t VALUES(2); COMMIT"} {
		execSQL(t, db, sql)
		committed()
		judge(sql)
	}
	refused = "write wal"
	if err := db.Exec("INSERT INTO t VALUES(2)"); err == nil {
		t.Fatal("the write did not fail")
	}
	judge("a write that failed")
	refused = ""
	execSQL(t, db, "BEGIN IMMEDIATE; COMMIT")
	judge("a transaction without a change")
	execSQL(t, db, "INSERT INTO t VALUES(2)")
	committed()
	judge("the next commit")
	if synchronous != "full" {
		return
	}
	refused = "sync wal"
	if err := db.Exec("INSERT INTO t VALUES(3)"); err == nil {
		t.Fatal("the sync did not fail")
	}
	refused = ""
	_ = db.Exec("BEGIN IMMEDIATE; COMMIT")
	judge("a sync that failed")
}
