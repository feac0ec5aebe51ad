// SPDX-License-Identifier: MIT

package backup

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// cutMachine is a database whose backup is in a store elsewhere, and what both had at each moment.
type cutMachine struct {
	t       *testing.T
	journal string // the pragmas of the database
	trace   *powercut.Trace
	stores  []*memory // after each object
	durable bool      // commits are durable when they return
}

// record commits, and notes what is acknowledged: commits, those that Sync has waited for, and objects.
func (m *cutMachine) record(log sqlitevfs.Switch, commits int) {
	t := m.t
	dir := memoryDir(t)
	r := sqlitecut.NewRecorder(dir)
	base := strings.ReplaceAll(t.Name(), "/", "-")
	vfs.Register(base, r.VFS(nil))
	t.Cleanup(func() { vfs.Unregister(base) })
	if err := sqlitevfs.Register(base+"-ours", sqlitevfs.Options{Base: base, GroupLog: log}); err != nil {
		t.Fatal(err)
	}
	store := newMemory()
	m.stores = []*memory{store.copy()}
	begun := 0
	store.hook = func(call string) error {
		store.mu.Lock()
		defer store.mu.Unlock()
		switch call {
		case "Put":
			begun++
			r.Ack("begun", begun)
		case "Put done":
			m.stores = append(m.stores, store.copy())
			r.Ack("stored", len(m.stores)-1)
		}
		return nil
	}
	b := start(t, dir, store, func(o *Options) { o.Interval, o.Scratch, o.Parallel = time.Millisecond, memoryDir(t), 1 })
	defer b.Close()
	db := open(t, filepath.Join(dir, "db"), "vfs="+base+"-ours&"+m.journal)
	defer db.Close()
	r.Ack("db", 0)
	for i := 1; i <= commits; i++ {
		if err := commit(db, i); err != nil {
			t.Fatal(err)
		}
		r.Ack("db", i)
		if i%3 == 0 {
			synced(t, b)
			r.Ack("synced", i)
		}
	}
	m.trace = r.Trace()
}

// check compares the store and the disk after a power cut, starts the machine again, and compares again.
func (m *cutMachine) check(s *powercut.State, dir string) error {
	if _, ok := s.Acked["db"]; !ok {
		return nil // the tables may not be there
	}
	n := s.Acked["stored"]
	if s.Number%2 == 1 { // the object on its way has arrived
		n = s.Acked["begun"]
	}
	store := m.stores[n].copy()
	inStore, waited := -1, -1
	if n, ok := s.Acked["synced"]; ok {
		waited = n
	}
	if files, _ := Files(m.t.Context(), store, "db"); len(files) > 0 {
		var err error
		if inStore, err = m.restored(store); err != nil {
			return err
		}
	}
	db := open(m.t, filepath.Join(dir, "db"), "vfs="+sqlitevfs.NameLog+"&"+m.journal)
	defer db.Close()
	onDisk, err := counted(db)
	switch {
	case err != nil:
		return err
	case inStore < waited:
		return fmt.Errorf("the store has %d commits, Sync had waited for %d", inStore, waited)
	case m.durable && onDisk < s.Acked["db"]:
		return fmt.Errorf("the disk has %d commits of %d", onDisk, s.Acked["db"])
	case m.durable && inStore > onDisk:
		return fmt.Errorf("the store has %d commits, the disk %d", inStore, onDisk)
	}
	b := start(m.t, dir, store, func(o *Options) { o.Interval, o.Scratch, o.check = time.Millisecond, memoryDir(m.t), time.Millisecond })
	defer b.Close()
	if err := errors.Join(commit(db, 1), b.Sync(m.t.Context())); err != nil {
		return err
	}
	if got, err := m.restored(store); err != nil || got != onDisk+1 {
		return fmt.Errorf("after the start: %d commits in the store, %d on the disk: %w", got, onDisk+1, err)
	}
	if r, err := Verify(m.t.Context(), store, "db"); err != nil || len(r.Problems) > 0 {
		return fmt.Errorf("after the start: %v: %w", r.Problems, err)
	}
	return nil
}

// restored returns the number of commits in a store.
func (m *cutMachine) restored(store Target) (int, error) {
	path := filepath.Join(memoryDir(m.t), "restored")
	defer os.RemoveAll(filepath.Dir(path))
	if _, err := Restore(m.t.Context(), store, "db", path, RestoreOptions{}); err != nil {
		return 0, err
	}
	db, err := sql.Open("sqlite3", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	if !tables(m.t, path) {
		return -1, nil // a commit of those that make the tables
	}
	return counted(db)
}

// counted returns the number of commits, after all rows and the structure were checked.
func counted(db *sql.DB) (n int, err error) {
	var rows int
	var ok string
	err = db.QueryRow(`SELECT (SELECT count(*) FROM rows), n, (SELECT * FROM pragma_integrity_check) FROM count`).Scan(&rows, &n, &ok)
	if err == nil && (rows != n || ok != "ok") {
		err = fmt.Errorf("%d rows, a count of %d, %s", rows, n, ok)
	}
	return n, err
}

// TestPowerCut cuts the power of a machine whose store is elsewhere. The store has all commits that Sync has waited for, and
// none that the disk does not have, unless commits are not durable when they return. After the next
// start the store has the state of the disk.
// Promise: sqlitevfs/backup-power-cut
func TestPowerCut(t *testing.T) {
	for _, mode := range []struct {
		name, journal string
		log           sqlitevfs.Switch
		durable       bool
	}{
		{"log", "_pragma=page_size(1024)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(12)", sqlitevfs.On, true},
		{"wal", "_pragma=page_size(1024)&_pragma=journal_mode(wal)&_pragma=synchronous(full)&_pragma=wal_autocheckpoint(12)", sqlitevfs.Off, true},
		{"normal", "_pragma=page_size(1024)&_pragma=journal_mode(wal)&_pragma=synchronous(normal)&_pragma=wal_autocheckpoint(12)", sqlitevfs.Off, false},
		{"persist", "_pragma=page_size(1024)&_pragma=journal_mode(persist)&_pragma=synchronous(full)", sqlitevfs.Off, true},
	} {
		t.Run(mode.name, func(t *testing.T) {
			m := &cutMachine{t: t, journal: mode.journal, durable: mode.durable}
			m.record(mode.log, 9)
			e := powercut.Explore{Seed: rand.Uint64(), States: 1, Every: 1 + len(m.trace.Ops)/12, Dir: memoryDir(t), Check: m.check}
			if *long {
				e.States, e.Every = 600, 1
			}
			res, err := m.trace.Run(e)
			if t.Logf("%d operations, %+v", len(m.trace.Ops), res); err != nil {
				t.Error(err)
			}
		})
	}
}
