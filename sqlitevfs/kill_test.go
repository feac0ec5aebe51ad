// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// killEnv makes the test binary the process that is killed. It has the URI of its database, and the
// number of its first row.
const (
	killEnv  = "RINGSIDE_TEST_KILL_DB"
	firstEnv = "RINGSIDE_TEST_KILL_FIRST"
)

const killWriters = 3

// TestKilledUnderLoad kills a process in which three connections commit, repeatedly on one
// database: every reported commit is there, and no commit is incomplete.
// Promise: sqlitevfs/committed-transaction-found-whole
func TestKilledUnderLoad(t *testing.T) {
	if name := os.Getenv(killEnv); name != "" {
		writeUntilKilled(t, name)
		return
	}
	lives := 2
	switch {
	case *long:
		lives = 100
	case testing.Short():
		lives = 1
	}
	for _, mode := range []string{"delete", "persist", "truncate", "wal", "wal+log"} {
		t.Run(mode, func(t *testing.T) {
			name := Name
			if mode == "wal+log" {
				needLog(t)
				name = NameLog
			}
			path := dbFile(t)
			c := connect(t, path, "os")
			execSQL(t, c, "PRAGMA journal_mode="+strings.TrimSuffix(mode, "+log")+"; CREATE TABLE t(id INTEGER PRIMARY KEY, k, v); CREATE INDEX i ON t(k); CREATE TABLE s(n); INSERT INTO s VALUES(0)")
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
			acked := map[string]bool{}
			for life := range lives {
				killOnce(t, uri(path, name), life, acked)
				judgeKilled(t, path, acked)
				if t.Failed() {
					return
				}
			}
			t.Logf("%d processes, %d commits", lives, len(acked))
		})
	}
}

// killOnce starts a process and kills it after some commits.
func killOnce(t *testing.T, name string, life int, acked map[string]bool) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledUnderLoad$")
	cmd.Env = append(os.Environ(), killEnv+"="+name, fmt.Sprint(firstEnv, "=", life*1_000_000))
	cmd.Stderr = os.Stderr
	ringtest.KillAfter(t, cmd, 1+rand.IntN(150), func(line string) bool {
		id, ok := strings.CutPrefix(line, "row ")
		if ok {
			acked[id] = true
		} else {
			t.Error(line)
		}
		return ok
	})
}

// judgeKilled checks the database, half of the time with stock SQLite alone. Everything
// that a killed process wrote to the system is still there, with or without the log.
func judgeKilled(t *testing.T, path string, acked map[string]bool) {
	t.Helper()
	name := "os"
	if rand.IntN(2) == 0 {
		name = Name
	}
	c, err := sqlite3.Open(uri(path, name))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	execSQL(t, c, "PRAGMA busy_timeout=60000")
	wantQuery(t, c, "PRAGMA integrity_check", "ok")
	wantQuery(t, c, "SELECT n-(SELECT count(*) FROM t) FROM s", "0")
	s, _, err := c.Prepare("SELECT id FROM t")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	there := map[string]bool{}
	for s.Step() {
		there[s.ColumnText(0)] = true
	}
	for id := range acked {
		if !there[id] {
			t.Errorf("row %s was committed and is missing; %d of %d are there", id, len(there), len(acked))
			return
		}
	}
}

// writeUntilKilled commits by several connections, and prints each committed row with one
// write.
func writeUntilKilled(t *testing.T, name string) {
	first := 0
	fmt.Sscan(os.Getenv(firstEnv), &first)
	var wg sync.WaitGroup
	for w := range killWriters {
		wg.Go(func() {
			c, err := sqlite3.Open(name)
			if err == nil {
				err = c.Exec("PRAGMA busy_timeout=60000; PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=30; PRAGMA cache_size=10")
			}
			for i := w; err == nil; i += killWriters {
				size := 300
				if i%7 == 0 {
					size = 60_000
				}
				err = c.Exec(fmt.Sprintf("BEGIN IMMEDIATE; INSERT INTO t VALUES(%[1]d, hex(randomblob(8)), randomblob(%[2]d)); UPDATE t SET v=randomblob(200), k=hex(randomblob(8)) WHERE id=%[1]d-6; UPDATE s SET n=n+1; COMMIT", first+i, size))
				if err == nil {
					_, err = fmt.Fprintln(os.Stdout, "row", first+i)
				}
			}
			fmt.Fprintln(os.Stdout, "error:", err)
		})
	}
	wg.Wait()
}
