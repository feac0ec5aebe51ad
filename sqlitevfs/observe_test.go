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

// TestOneObserver: an observer is asked about the databases that are open, and there is one observer at a time.
func TestOneObserver(t *testing.T) {
	path := dbFile(t)
	execSQL(t, connect(t, path, Name), "CREATE TABLE t(x)")
	asked := 0
	observer := func(p string) Observed {
		if p == path {
			asked++
		}
		return nil
	}
	stop, err := Observe(observer)
	if err != nil || asked != 1 {
		t.Fatalf("asked %d times about the open database, %v", asked, err)
	}
	if _, err := Observe(observer); err != ErrObserved {
		t.Errorf("a second observer: %v", err)
	}
	stop()
	next := watch(t, path) // a database is asked about once
	connect(t, path, Name)
	if asked != 1 || len(next.told()) != 0 {
		t.Errorf("asked %d times", asked)
	}
}

// pieces is an observer that notes what changed.
type pieces struct {
	witness
	changed [][]Piece
}

func (p *pieces) Changed(written []Piece) { p.changed = append(p.changed, written) }

// TestPiecesOfATransaction: adjacent writes of a rollback mode are one piece, and too many pieces are none.
func TestPiecesOfATransaction(t *testing.T) {
	p := &pieces{}
	d := &database{}
	var who Observed = p
	d.seen.who.Store(&who)
	d.changed() // nothing was written
	for _, off := range []int64{0, 4096, 8192, 20480, 4096} {
		d.seen.add(Piece{off, 4096})
	}
	d.changed()
	d.changed() // a connection may end it more than once
	for i := range int64(maxPieces) {
		d.seen.add(Piece{i * 8192, 4096})
	}
	d.changed()
	for i := range int64(maxPieces + 1) {
		d.seen.add(Piece{i * 8192, 4096})
	}
	d.changed()
	d.seen.add(Piece{0, 1})
	d.changed()
	want := "[{0 12288} {20480 4096} {4096 4096}]"
	if len(p.changed) != 4 || fmt.Sprint(p.changed[0]) != want {
		t.Fatalf("%d transactions, the first one %v, want %s", len(p.changed), p.changed[:min(len(p.changed), 1)], want)
	}
	if len(p.changed[1]) != maxPieces || p.changed[2] != nil || len(p.changed[3]) != 1 {
		t.Errorf("%d, %d and %d pieces, want %d, none and 1", len(p.changed[1]), len(p.changed[2]), len(p.changed[3]), maxPieces)
	}
}
