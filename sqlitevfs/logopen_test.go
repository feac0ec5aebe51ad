// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

const logName = "ringside-wal.log"

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestLogIsMadeForACommit opens, reads and writes without any need for the log.
func TestLogIsMadeForACommit(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	log := filepath.Join(filepath.Dir(path), logName)
	none := func(after string) {
		t.Helper()
		if exists(log) || exists(log+".new") {
			t.Fatalf("there is a log after %s", after)
		}
	}
	if c, err := sqlite3.Open(uri(path, NameLog, "mode", "rw")); err == nil {
		c.Close()
		t.Error("a database that is not there was opened")
	}
	none("a failed open")
	c := connect(t, path, NameLog)
	execSQL(t, c, "PRAGMA synchronous=FULL; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
	none("commits with a rollback journal")
	stock := connect(t, path, "os")
	execSQL(t, stock, "PRAGMA journal_mode=WAL; INSERT INTO t VALUES(2)")
	wantQuery(t, c, "SELECT count(*) FROM t", "2")
	none("reading a WAL")
	ro := connect(t, path, NameLog, "mode", "ro")
	wantQuery(t, ro, "SELECT count(*) FROM t", "2")
	none("opening to read only")
	execSQL(t, c, "PRAGMA synchronous=NORMAL; INSERT INTO t VALUES(3)")
	none("a commit with synchronous=NORMAL")
	execSQL(t, c, "PRAGMA synchronous=FULL; BEGIN; INSERT INTO t VALUES(4); ROLLBACK")
	none("a transaction that was rolled back")
	execSQL(t, c, "INSERT INTO t VALUES(5)")
	if !exists(log) {
		t.Error("there is no log after a commit")
	}
	before := statsOf(path).Logged
	execSQL(t, c, "INSERT INTO t VALUES(6)")
	if statsOf(path).Logged != before+1 {
		t.Error("the next commit was not logged:", statsOf(path))
	}
}

// TestReadOnlyOpen opens a database to read only whose log was not replayed: it
// is refused where commits are missing, and nothing is changed.
func TestReadOnlyOpen(t *testing.T) {
	needLog(t)
	path := dbFile(t)
	acked := committer(t, path, 20)()
	files := func() (all [][]byte) {
		for _, name := range []string{path, path + "-wal", filepath.Join(filepath.Dir(path), logName)} {
			p, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, p)
		}
		return all
	}
	count := func(c *sqlite3.Conn) {
		t.Helper()
		if n, _ := strconv.Atoi(query(t, c, "SELECT count(*) FROM t")); n < acked {
			t.Errorf("%d rows, %d were committed", n, acked)
		}
	}
	before := files()
	// The process died, and the page cache has what it wrote.
	c, err := sqlite3.Open(uri(path, Name, "mode", "ro"))
	if err != nil {
		t.Fatal(err)
	}
	count(c)
	c.Close()
	if err := os.Truncate(path+"-wal", int64(len(before[1])/2)); err != nil {
		t.Fatal(err)
	}
	before = files()
	for _, name := range []string{Name, NameLog} {
		c, err := sqlite3.Open(uri(path, name, "mode", "ro"))
		if !errors.Is(err, sqlite3.READONLY_RECOVERY) {
			t.Errorf("%s: opened to read only: %v", name, err)
		}
		if err == nil {
			c.Close()
		}
	}
	for i, p := range files() {
		if !bytes.Equal(p, before[i]) {
			t.Errorf("file %d was changed", i)
		}
	}
	count(connect(t, path, Name))
	count(connect(t, path, Name, "mode", "ro"))
}
