// SPDX-License-Identifier: MIT

package powercut_test

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// recordAlone runs a program that opens a database exclusively, commits, checkpoints, restarts the WAL and closes, and
// then wakes the database for single commits. covers: see VFS.Covers.
func recordAlone(t *testing.T, k work, level string, log sqlitevfs.Switch, covers bool) *powercut.Trace {
	t.Helper()
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	v := r.VFS(nil)
	v.Covers = covers
	base := register(t, v)
	if err := sqlitevfs.Register(base+"-ours", sqlitevfs.Options{Base: base, GroupLog: log}); err != nil {
		t.Fatal(err)
	}
	k.alone, k.extra = true, "PRAGMA synchronous="+level
	n := 0
	for life := range 3 {
		c := open(t, filepath.Join(dir, "db"), base+"-ours")
		ack := func() {
			if level != "NORMAL" {
				r.Ack("db", n)
			}
		}
		commit := func() {
			n++
			k.commit(t, c, n)
			ack()
		}
		if life == 0 {
			k.setup(t, c)
			ack()
			commit()
			commit()
			exec(t, c, "PRAGMA wal_checkpoint(RESTART)")
			commit()
			exec(t, c, "PRAGMA wal_checkpoint(TRUNCATE)")
			commit()
			// Others may use the database between these. SQLite changes the mode by a rollback journal: with NORMAL it writes
			// that journal's header without a sync before, and the checksum of a page covers one byte in 200.
			exec(t, c, "PRAGMA synchronous=FULL; PRAGMA journal_mode=DELETE; PRAGMA locking_mode=NORMAL; SELECT * FROM n")
			exec(t, c, "PRAGMA locking_mode=EXCLUSIVE; PRAGMA journal_mode=%s; PRAGMA synchronous=%s", k.mode, level)
		} else {
			exec(t, c, "%sPRAGMA journal_mode=%s; PRAGMA synchronous=%s", k.locking(), k.mode, level)
		}
		commit()
		if life == 1 {
			exec(t, c, "BEGIN; UPDATE n SET n=-1; ROLLBACK; PRAGMA wal_checkpoint")
			commit()
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if k.mode == "WAL" {
			r.Ack("db", n) // with NORMAL too: the checkpoint was synced
		}
	}
	return r.Trace()
}

// TestAlone cuts the power of a connection with locking_mode=EXCLUSIVE, which leaves out syncs of a WAL that no other
// connection can have changed: between the header of a new WAL, its first commit, checkpoints and the close.
// Promise: sqlitevfs/committed-transaction-found
func TestAlone(t *testing.T) {
	for _, mode := range modes {
		for _, level := range []string{"NORMAL", "FULL", "EXTRA"} {
			for _, log := range []sqlitevfs.Switch{sqlitevfs.Off, sqlitevfs.On} {
				for _, covers := range []bool{false, true} {
					if mode != "WAL" && (log == sqlitevfs.On || level != "FULL") {
						continue
					}
					t.Run(fmt.Sprintf("%s-%s-log=%v-covers=%v", mode, level, log, covers), func(t *testing.T) {
						exploreSome(t, recordAlone(t, work{mode: mode}, level, log, covers), ringtest.Rounds(600, 120), 1, logged("db"))
					})
				}
			}
		}
	}
}

// TestAloneSeeded leaves out the syncs that are left, one by one.
// Promise: sqlitevfs/power-cut-tests
func TestAloneSeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("checks another test, not the product: not with -short")
	}
	for _, c := range []powercut.Class{{Suffix: "-wal"}, {Suffix: "-wal", From: 2}, {Suffix: "db"}} {
		t.Run(fmt.Sprint(c.Suffix, c.From), func(t *testing.T) {
			leaveOut(t, recordAlone(t, work{mode: "WAL"}, "FULL", sqlitevfs.Off, true), c, stock)
		})
	}
}
