// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// changeCounter reads the file change counter from a database's header.
func changeCounter(t testing.TB, path string) uint32 {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var p [4]byte
	if _, err := f.ReadAt(p[:], 24); err != nil {
		t.Fatal(err)
	}
	return binary.BigEndian.Uint32(p[:])
}

func TestChangeCounterRisesWithEachCommit(t *testing.T) {
	for _, mode := range []string{"delete", "truncate", "persist"} {
		path := dbFile(t)
		c := connect(t, path, Name)
		execSQL(t, c, "PRAGMA journal_mode="+mode+"; CREATE TABLE t(a); CREATE INDEX i ON t(a)")
		for i := range 20 {
			before := changeCounter(t, path)
			execSQL(t, c, fmt.Sprintf("INSERT INTO t VALUES(%d); ", i))
			if after := changeCounter(t, path); after != before+1 {
				t.Fatalf("%s: the counter is %d after %d", mode, after, before)
			}
		}
	}
}

// TestThreeConnectionsAtRandom inserts, updates and searches an index with three
// connections. Each must see the commits of the others.
// Promise: sqlitevfs/programs-default-vfs
func TestThreeConnectionsAtRandom(t *testing.T) {
	seeds, steps := ringtest.Rounds(6, 4), 60
	if testing.Short() {
		seeds, steps = 3, 10
	}
	if *long {
		seeds, steps = 300, 300
	}
	all := []string{"delete", "truncate", "persist", "wal"}
	for seed := range seeds {
		mode := all[seed%len(all)]
		t.Run(fmt.Sprintf("%s/%d", mode, seed), func(t *testing.T) { stress(t, mode, uint64(seed), steps) })
	}
}

func stress(t *testing.T, mode string, seed uint64, steps int) {
	path := dbFile(t)
	c := connect(t, path, Name)
	execSQL(t, c, "PRAGMA journal_mode="+mode+"; CREATE TABLE t(id INTEGER PRIMARY KEY, k INT, x); CREATE INDEX i ON t(k); CREATE TABLE s(n); INSERT INTO s VALUES(0)")
	var mu sync.Mutex
	commits := 0
	var wg sync.WaitGroup
	for i, name := range []string{Name, NameGroup, "os"} {
		c := connect(t, path, name)
		execSQL(t, c, "PRAGMA busy_timeout=60000; PRAGMA synchronous=FULL; PRAGMA cache_size=10")
		rnd := rand.New(rand.NewPCG(seed, uint64(i)))
		wg.Go(func() {
			for range steps {
				sql := randomStep(rnd)
				err := c.Exec(sql)
				if errors.Is(err, sqlite3.BUSY) {
					c.Exec("ROLLBACK")
					continue
				}
				if err != nil {
					t.Errorf("seed %d: %s: %v", seed, sql, err)
					return
				}
				mu.Lock()
				commits++
				mu.Unlock()
				if rnd.IntN(8) == 0 {
					if got := query(t, c, "SELECT count(*)-(SELECT count(*) FROM t INDEXED BY i WHERE k>=0) FROM t NOT INDEXED"); got != "0" {
						t.Errorf("seed %d: index and table differ by %s", seed, got)
					}
				}
			}
		})
	}
	wg.Wait()
	wantQuery(t, c, "SELECT n FROM s", fmt.Sprint(commits))
	wantQuery(t, c, "PRAGMA integrity_check", "ok")
}

func randomStep(rnd *rand.Rand) string {
	work := ""
	switch rnd.IntN(4) {
	case 0, 1:
		work = fmt.Sprintf("INSERT INTO t(k, x) VALUES(%d, randomblob(%d))", rnd.IntN(1000), rnd.IntN(3000))
	case 2:
		work = fmt.Sprintf("UPDATE t SET k=k+%d WHERE k BETWEEN %d AND %d", rnd.IntN(100), rnd.IntN(500), 500+rnd.IntN(500))
	case 3:
		work = fmt.Sprintf("DELETE FROM t WHERE id%%%d=0", 2+rnd.IntN(20))
	}
	return "BEGIN IMMEDIATE; " + work + "; UPDATE s SET n=n+1; COMMIT"
}
