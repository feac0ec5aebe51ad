// SPDX-License-Identifier: MIT

package powercut_test

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// onePage records commits that change one page each, on a device that reports atomic writes of 4 KiB.
// Every step-th commit is acknowledged, after the statements that change returns for it.
func onePage(t *testing.T, commits, step int, change func(i int) string) *powercut.Trace {
	t.Helper()
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	base := register(t, r.VFS(nil))
	name := base + "-atomic"
	if err := sqlitevfs.Register(name, sqlitevfs.Options{Base: base, Atomic4K: sqlitevfs.AtomicTrust}); err != nil {
		t.Fatal(err)
	}
	c := open(t, filepath.Join(dir, "db"), name)
	defer c.Close()
	exec(t, c, `PRAGMA page_size=4096; PRAGMA journal_mode=DELETE; PRAGMA synchronous=FULL;
		CREATE TABLE n(id INTEGER PRIMARY KEY, n INTEGER, pad TEXT);
		INSERT INTO n VALUES(1, 0, '%s'); CREATE TABLE other(v)`, padOf(0))
	r.Ack("db", 0)
	for i := step; i <= commits; i += step {
		exec(t, c, "%s", change(i))
		r.Ack("db", i)
	}
	return r.Trace()
}

// update returns the statement that is commit i.
func update(i int) string {
	return fmt.Sprintf("UPDATE n SET n=%d, pad='%s' WHERE id=1;", i, padOf(i))
}

// padOf returns most of a page, so that a torn page has parts of two versions.
func padOf(i int) string { return strings.Repeat(fmt.Sprintf("%07d", i), 500) }

// judgePage returns an error if the database is wrong.
func judgePage(s *powercut.State, dir string) error {
	acked, ok := s.Acked["db"]
	if !ok || !s.Has("db") {
		return nil
	}
	c, err := sqlite3.Open("file:" + filepath.Join(dir, "db") + "?vfs=os")
	if err != nil {
		return err
	}
	defer c.Close()
	if text, err := query(c, `PRAGMA integrity_check`); err != nil || text != "ok" {
		return fmt.Errorf("integrity_check: %s %w", text, err)
	}
	text, err := query(c, `SELECT n || ' ' || pad FROM n`)
	if err != nil {
		return err
	}
	var n int
	var pad string
	if _, err := fmt.Sscan(text, &n, &pad); err != nil {
		return err
	}
	if n < acked || pad != padOf(n) {
		return fmt.Errorf("commit %d was acknowledged, commit %d is there, intact: %v", acked, n, pad == padOf(n))
	}
	return nil
}

// TestAtomicPages cuts the power during commits without a journal, on a disk that writes 4
// KiB as a whole, and on a disk that may tear them.
// Promise: sqlitevfs/committed-transaction-found
func TestAtomicPages(t *testing.T) {
	trace := onePage(t, 12, 1, update)
	journals, after := 0, false
	for _, op := range trace.Ops {
		after = after || op.Kind == powercut.Ack
		if after && op.Kind == powercut.Create && strings.HasSuffix(op.Name, "-journal") {
			journals++
		}
	}
	if journals > 0 {
		t.Fatalf("%d of 12 commits had a journal, want 0", journals)
	}
	run := func(sector int64) (powercut.Result, error) {
		return trace.Run(powercut.Explore{Seed: 1, States: 600, Sector: sector, Dir: fastDir(t), Check: judgePage})
	}
	res, err := run(4096)
	if err != nil {
		t.Error(err)
	}
	t.Logf("%+v", res)
	if testing.Short() {
		return
	}
	if _, err := run(512); err == nil {
		t.Error("no state of a disk that tears pages is damaged: the test would not find a torn page")
	}
}

// TestAtomicPagesAfterNormal commits one page without a journal after a transaction with
// synchronous=NORMAL, and after the rollback of a hot journal. The journal of that transaction must not
// reappear, because it would undo the commit.
func TestAtomicPagesAfterNormal(t *testing.T) {
	trace := onePage(t, 8, 2, func(i int) string {
		return `PRAGMA synchronous=NORMAL; BEGIN; INSERT INTO other VALUES(randomblob(9000));` + update(i-1) + `COMMIT;
			PRAGMA synchronous=FULL;` + update(i)
	})
	if _, err := trace.Run(powercut.Explore{Seed: 1, States: 600, Sector: 4096, Dir: fastDir(t), Check: judgePage}); err != nil {
		t.Error(err)
	}
}
