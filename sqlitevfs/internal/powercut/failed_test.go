// SPDX-License-Identifier: MIT

package powercut_test

import (
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

var failures = flag.Int("failures", -1, "how many calls of each workload of TestFailedDisk fail, one in each run; 0: all; -1: two, ten with RINGSIDE_LONG=1")

// ending is how a program ends after a failed commit.
type ending string

const (
	closes ending = "closed" // it closes its connections
	dies   ending = "killed" // it ends, as with panic(err)
	shares ending = "shared" // another process has the database open, so that the last close is no checkpoint
)

// lives is a program that meets a failed write or sync, ends, starts again, and makes further commits.
type lives struct {
	t    *testing.T
	r    *sqlitecut.Recorder
	dir  string
	k    work
	log  sqlitevfs.Switch
	end  ending
	next int // the next commit
	// failed is a commit that returned an error, 0 if none did.
	failed int
	ended  int  // operations before the second life
	again  bool // it tries one more commit after the one that failed
}

// connect opens the database in a new process.
func (l *lives) connect() (*sqlitecut.VFS, *sqlite3.Conn, error) {
	v := l.r.VFS(nil)
	v.Covers = l.k.alone
	base := register(l.t, v)
	o := sqlitevfs.Options{Base: base, GroupLog: l.log, Logger: slog.New(slog.DiscardHandler)}
	if err := sqlitevfs.Register(base+"-ours", o); err != nil {
		l.t.Fatal(err)
	}
	c, err := sqlite3.Open("file:" + filepath.Join(l.dir, "db") + "?vfs=" + base + "-ours")
	if err == nil {
		err = c.Exec(l.k.locking() + "PRAGMA synchronous=FULL; PRAGMA wal_autocheckpoint=12; PRAGMA journal_mode=" + l.k.mode + ";" + l.k.extra)
	}
	return v, c, err
}

// work commits until a commit fails.
func (l *lives) work(c *sqlite3.Conn, commits int) {
	for range commits {
		size := 700
		if l.k.large && l.next%3 == 0 {
			size = 20_000
		}
		if err := c.Exec("BEGIN;" + commitSQL("main", l.next, size) + "COMMIT"); err != nil {
			l.failed = l.next
			if !c.GetAutocommit() {
				c.Exec("ROLLBACK")
			}
			if l.again {
				c.Exec("UPDATE n SET n=n")
			}
			return
		}
		l.r.Ack("db", l.next)
		l.next++
	}
}

// run runs the program. It returns the number of calls that could have failed.
func (l *lives) run(nth int) (calls int, what string) {
	v, c, err := l.connect()
	if err != nil {
		l.t.Fatal(err)
	}
	l.k.setup(l.t, c)
	l.r.Ack("db", 0)
	l.next = 1
	var other *sqlite3.Conn
	if l.end == shares {
		if _, other, err = l.connect(); err == nil {
			_, err = query(other, "SELECT count(*) FROM n")
		}
		if err != nil {
			l.t.Fatal(err)
		}
	}
	l.r.FailAt(nth)
	l.work(c, l.k.commits)
	if l.end == dies {
		v.Kill()
	}
	c.Close()
	if other != nil {
		other.Close()
	}
	calls, what = l.r.Calls()
	l.ended = len(l.r.Trace().Ops)
	l.restart()
	return calls, what
}

// restart is the second and the third life: the disk works.
func (l *lives) restart() {
	l.r.FailAt(-1)
	for range 2 {
		v, c, err := l.connect()
		if err != nil {
			l.t.Fatal("opened again: ", err)
		}
		n, err := query(c, "SELECT n FROM n")
		if err != nil {
			l.t.Fatal("opened again: ", err)
		}
		var last int
		fmt.Sscan(n, &last)
		if last < l.next-1 || last > max(l.next-1, l.failed) {
			l.t.Errorf("opened again: the last commit is %d, %d was acknowledged and %d failed", last, l.next-1, l.failed)
		}
		l.next, l.failed = last+1, 0
		l.work(c, 3)
		if l.failed != 0 {
			l.t.Errorf("commit %d failed, and the disk works", l.failed)
		}
		v.Kill()
		c.Close()
	}
}

// TestFailedDisk lets a write or a sync fail once, as after an error of the disk: the kernel counts the
// pages as written. The program then closes its connections or dies, starts again, and commits further. A
// power cut at any moment must not take a commit that was acknowledged, before or after the failure.
// Promise: sqlitevfs/failed-disk-reopened
func TestFailedDisk(t *testing.T) {
	for _, k := range []struct {
		name string
		work work
		log  sqlitevfs.Switch
	}{
		{"DELETE", work{mode: "DELETE"}, sqlitevfs.Off},
		{"TRUNCATE", work{mode: "TRUNCATE"}, sqlitevfs.Off},
		{"PERSIST", work{mode: "PERSIST"}, sqlitevfs.Off},
		{"PERSIST-spill", work{mode: "PERSIST", spill: true}, sqlitevfs.Off},
		{"WAL", work{mode: "WAL"}, sqlitevfs.Off},
		{"WAL-spill", work{mode: "WAL", spill: true}, sqlitevfs.Off},
		{"WAL-rare-checkpoints", work{mode: "WAL", extra: "PRAGMA wal_autocheckpoint=1000"}, sqlitevfs.Off},
		{"WAL-exclusive", work{mode: "WAL", extra: "PRAGMA locking_mode=EXCLUSIVE"}, sqlitevfs.Off},
		{"WAL-alone", work{mode: "WAL", alone: true}, sqlitevfs.Off},
		{"WAL-log", work{mode: "WAL"}, sqlitevfs.On},
		{"WAL-log-alone", work{mode: "WAL", alone: true}, sqlitevfs.On},
		{"WAL-log-large", work{mode: "WAL", large: true, extra: "PRAGMA wal_autocheckpoint=1000"}, sqlitevfs.On},
	} {
		for _, end := range []ending{closes, dies, shares} {
			if end == shares && (k.work.alone || k.work.extra == "PRAGMA locking_mode=EXCLUSIVE") {
				continue
			}
			t.Run(k.name+"-"+string(end), func(t *testing.T) {
				k.work.commits = 4
				sweepFailures(t, lives{k: k.work, log: k.log, end: end})
			})
		}
	}
}

// sweepFailures runs a program once for each failure.
func sweepFailures(t *testing.T, l lives) {
	count := *failures
	if count < 0 {
		count = ringtest.Rounds(10, 2)
	}
	one := func(nth int) (calls int, what string) {
		run := l
		run.t, run.dir, run.again = t, fastDir(t), rand.IntN(2) == 0
		run.r = sqlitecut.NewRecorder(run.dir)
		calls, what = run.run(nth)
		if nth >= 0 {
			trace := run.r.Trace()
			every := 1
			if count > 0 {
				every = 1 + (len(trace.Ops)-run.ended)/12
			}
			exploreWith(t, trace, powercut.Explore{From: run.ended, Every: every, Check: logged("db")})
		}
		return calls, what
	}
	calls, _ := one(-1)
	step := 1
	if count > 0 {
		step = max(1, calls/count)
	}
	found := map[string]int{}
	for nth := rand.IntN(step); nth < calls; nth += step {
		_, what := one(nth)
		found[what]++
		if t.Failed() {
			t.Fatalf("call %d of %d failed: %s", nth, calls, what)
		}
	}
	t.Log(found)
}
