// SPDX-License-Identifier: MIT

package powercut_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3"
	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	_ "github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// fastDir returns a directory in memory, if there is one, because there are many states.
func fastDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "ringside-powercut-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return dir
}

// register registers a VFS for the duration of a test.
func register(t testing.TB, v vfs.VFS) string {
	t.Helper()
	name := strings.ReplaceAll(t.Name(), "/", "-") + fmt.Sprint("-", registered)
	registered++
	vfs.Register(name, v)
	t.Cleanup(func() { vfs.Unregister(name) })
	return name
}

var registered int

func open(t testing.TB, path, vfs string) *sqlite3.Conn {
	t.Helper()
	c, err := sqlite3.Open("file:" + path + "?vfs=" + vfs)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func exec(t testing.TB, c *sqlite3.Conn, sql string, args ...any) {
	t.Helper()
	if err := c.Exec(fmt.Sprintf(sql, args...)); err != nil {
		t.Fatal(sql, err)
	}
}

// work commits to a database: each transaction changes several pages of two tables and an
// index, and some spill their cache.
type work struct {
	mode    string // journal_mode
	commits int
	spill   bool // a cache so small that pages are written before the commit
	extra   string
	large   bool // each third commit writes many pages
	choose  bool // commits that are alone use the log only where the WAL grows
	alone   bool // locking_mode=EXCLUSIVE, with the WAL's index in memory
}

// locking returns the pragma that comes before the first use of a database.
func (k work) locking() string {
	if k.alone {
		return "PRAGMA locking_mode=EXCLUSIVE;"
	}
	return ""
}

// setup creates the tables: commit 0.
func (k work) setup(t testing.TB, c *sqlite3.Conn) {
	t.Helper()
	exec(t, c, `%s PRAGMA page_size=1024; PRAGMA journal_mode=%s; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=12; %s`, k.locking(), k.mode, k.extra)
	if k.spill {
		exec(t, c, `PRAGMA cache_size=5`)
	}
	exec(t, c, `BEGIN;
		CREATE TABLE a(id INTEGER PRIMARY KEY, x TEXT, v BLOB);
		CREATE INDEX ax ON a(x);
		CREATE TABLE b(id INTEGER PRIMARY KEY, v BLOB);
		CREATE TABLE n(n INTEGER);
		INSERT INTO n VALUES(0);
		COMMIT`)
}

// commit makes commit i.
func (k work) commit(t testing.TB, c *sqlite3.Conn, i int) {
	t.Helper()
	size := 700
	if k.large && i%3 == 0 {
		size = 20_000
	}
	exec(t, c, "BEGIN;%sCOMMIT", commitSQL("main", i, size))
}

// commitSQL returns the statements of commit i for a schema.
func commitSQL(schema string, i, size int) string {
	return fmt.Sprintf(`
		INSERT INTO %[3]s.a VALUES(%[1]d, hex(randomblob(8)), randomblob(300));
		INSERT INTO %[3]s.b VALUES(%[1]d, randomblob(%[2]d));
		UPDATE %[3]s.a SET v=randomblob(400), x=hex(randomblob(8)) WHERE id=%[1]d/2;
		DELETE FROM %[3]s.b WHERE id=%[1]d-5;
		UPDATE %[3]s.n SET n=%[1]d;
		`, i, size, schema)
}

// run records the workload on a database.
func (k work) run(t testing.TB, r *sqlitecut.Recorder, dir, name, vfs string) {
	t.Helper()
	c := open(t, filepath.Join(dir, name), vfs)
	defer c.Close()
	k.setup(t, c)
	r.Ack(name, 0)
	for i := 1; i <= k.commits; i++ {
		k.commit(t, c, i)
		r.Ack(name, i)
	}
}

// judge opens a database with stock SQLite and returns an error if it is wrong.
func judge(path string, acked int, ok bool) (err error) {
	if _, err := os.Stat(path); err != nil {
		if ok {
			return fmt.Errorf("the database is missing: commit %d was acknowledged", acked)
		}
		return nil
	}
	c, err := sqlite3.Open("file:" + path + "?vfs=os")
	if err != nil {
		return err
	}
	defer func() {
		if cerr := c.Close(); err == nil {
			err = cerr
		}
	}()
	text, err := query(c, `PRAGMA integrity_check`)
	if err != nil {
		return fmt.Errorf("integrity_check: %w", err)
	} else if text != "ok" {
		return fmt.Errorf("integrity_check: %s", text)
	}
	tables, err := query(c, `SELECT count(*) FROM sqlite_schema`)
	switch {
	case err != nil:
		return err
	case tables == "0" && !ok:
		return nil
	case tables != "4":
		return fmt.Errorf("%s tables and indexes", tables)
	}
	var n, rows, newest, others int
	text, err = query(c, `SELECT (SELECT n FROM n) || ' ' || (SELECT count(*) FROM a) || ' ' ||
		(SELECT coalesce(max(id), 0) FROM a) || ' ' || (SELECT coalesce(max(id), 0) FROM b)`)
	if err != nil {
		return err
	}
	if _, err := fmt.Sscan(text, &n, &rows, &newest, &others); err != nil {
		return err
	}
	switch {
	case ok && n < acked:
		return fmt.Errorf("commit %d was acknowledged, the last commit that is there is %d", acked, n)
	case rows != n || newest != n || others != n:
		return fmt.Errorf("half a commit: %d in one table, %d rows up to %d and up to %d in the others", n, rows, newest, others)
	}
	return nil
}

func query(c *sqlite3.Conn, sql string) (string, error) {
	s, _, err := c.Prepare(sql)
	if err != nil {
		return "", err
	}
	defer s.Close()
	text := ""
	if s.Step() {
		text = s.ColumnText(0)
	}
	return text, s.Err()
}

// judgeAll judges the databases of a state.
func judgeAll(s *powercut.State, dir string, names ...string) error {
	for _, name := range names {
		acked, ok := s.Acked[name]
		if err := judge(filepath.Join(dir, name), acked, ok); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
