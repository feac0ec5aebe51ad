// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// exclusiveWAL opens a database in WAL mode with exclusive locks.
func exclusiveWAL(t *testing.T, path, name string) *sqlite3.Conn {
	t.Helper()
	c := connect(t, path, name)
	execSQL(t, c, "PRAGMA locking_mode=exclusive; PRAGMA journal_mode=wal; PRAGMA synchronous=full")
	return c
}

// TestWALIsMadeByAWrite: a connection with locking_mode EXCLUSIVE makes no file for reading, a WAL for its first write, and
// uses one that is there.
func TestWALIsMadeByAWrite(t *testing.T) {
	for _, name := range []string{Name, NameLog, NamePlain} {
		t.Run(name, func(t *testing.T) {
			path := dbFile(t)
			files := func(want ...string) {
				t.Helper()
				for _, suffix := range []string{suffixWAL, "-shm", suffixJournal} {
					_, err := os.Stat(path + suffix)
					there := false
					for _, w := range want {
						there = there || w == suffix
					}
					if there != (err == nil) || err != nil && !errors.Is(err, fs.ErrNotExist) {
						t.Errorf("%s: %v, want %v", suffix, err, want)
					}
				}
			}
			c := exclusiveWAL(t, path, name)
			execSQL(t, c, "CREATE TABLE t(x)")
			files(suffixWAL)
			c.Close()
			files()

			c = exclusiveWAL(t, path, name)
			wantQuery(t, c, "SELECT count(*) FROM t", "0")
			c.Close()
			files()

			c = exclusiveWAL(t, path, name)
			wantQuery(t, c, "SELECT count(*) FROM t", "0")
			execSQL(t, c, "BEGIN IMMEDIATE; COMMIT; PRAGMA wal_checkpoint(TRUNCATE); PRAGMA locking_mode=normal")
			wantQuery(t, c, "SELECT count(*) FROM t", "0")
			files()
			other := connect(t, path, name, "_pragma", "busy_timeout(0)")
			if err := other.Exec("PRAGMA busy_timeout=0; SELECT * FROM t"); !errors.Is(err, sqlite3.BUSY) {
				t.Errorf("another connection: %v", err) // it could make a WAL
			}
			other.Close()
			execSQL(t, c, "INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)")
			files(suffixWAL)
			wantQuery(t, c, "SELECT count(*) FROM t", "2")
			left, err := os.ReadFile(path + suffixWAL)
			if err != nil {
				t.Fatal(err)
			}
			db, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
			files()

			path = dbFile(t) // as a kill leaves it
			if err := errors.Join(os.WriteFile(path, db, 0o600), os.WriteFile(path+suffixWAL, left, 0o600)); err != nil {
				t.Fatal(err)
			}
			c = exclusiveWAL(t, path, name)
			wantQuery(t, c, "SELECT count(*) FROM t", "2")
			c.Close()
			files()
		})
	}
}

// TestWALThatCannotBeMade: a write fails if its WAL cannot be made, and the next one succeeds when it can.
func TestWALThatCannotBeMade(t *testing.T) {
	name, r := record(t, Options{})
	path := dbFile(t)
	c := exclusiveWAL(t, path, name)
	execSQL(t, c, "CREATE TABLE t(x)")
	c.Close()
	c = exclusiveWAL(t, path, name)
	wantQuery(t, c, "SELECT count(*) FROM t", "0")
	r.fail = func(event string) error {
		if event == "open wal" {
			return syscall.EMFILE
		}
		return nil
	}
	if err := c.Exec("INSERT INTO t VALUES(1)"); !errors.Is(err, sqlite3.CANTOPEN) {
		t.Errorf("a write without a WAL: %v", err)
	}
	wantQuery(t, c, "SELECT count(*) FROM t", "0")
	r.fail = nil
	execSQL(t, c, "INSERT INTO t VALUES(2)")
	wantQuery(t, c, "SELECT group_concat(x) FROM t", "2")
}
