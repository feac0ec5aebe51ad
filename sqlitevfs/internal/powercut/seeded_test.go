// SPDX-License-Identifier: MIT

package powercut_test

import (
	"cmp"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/sqlitevfs"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// leftOut is a class of syncs that is left out on purpose.
type leftOut struct {
	name  string
	work  work
	class powercut.Class
}

// leftOutSyncs are the syncs on which the durability of a database depends.
var leftOutSyncs = []leftOut{
	{"journal", work{mode: "DELETE"}, powercut.Class{Suffix: "-journal", Every: true}},
	{"journal-truncate", work{mode: "TRUNCATE"}, powercut.Class{Suffix: "-journal", Every: true}},
	{"journal-persist", work{mode: "PERSIST"}, powercut.Class{Suffix: "-journal", Every: true}},
	{"directory", work{mode: "DELETE"}, powercut.Class{Suffix: "/"}},
	{"directory-truncate", work{mode: "TRUNCATE"}, powercut.Class{Suffix: "/"}},
	{"directory-wal", work{mode: "WAL", commits: 1}, powercut.Class{Suffix: "/"}},
	{"database", work{mode: "DELETE"}, powercut.Class{Suffix: "db"}},
	{"database-persist", work{mode: "PERSIST"}, powercut.Class{Suffix: "db"}},
	{"database-checkpoint", work{mode: "WAL", commits: 8}, powercut.Class{Suffix: "db"}},
	{"wal", work{mode: "WAL"}, powercut.Class{Suffix: "-wal"}},
}

// TestSeededBugs leaves out one sync, or both where SQLite syncs twice, and checks that a
// power cut shows it.
// Promise: sqlitevfs/power-cut-tests
// Promise: tests/missing-sync-found
func TestSeededBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("checks another test, not the product: not with -short")
	}
	for _, p := range leftOutSyncs {
		t.Run(p.name, func(t *testing.T) {
			p.work.commits = cmp.Or(p.work.commits, 3)
			trace := record(t, p.work, &sqlitevfs.Options{})
			leaveOut(t, trace, p.class, stock)
		})
	}
}

// leaveOut looks for a sync of a class whose loss a state shows.
func leaveOut(t *testing.T, trace *powercut.Trace, c powercut.Class, check func(*powercut.State, string) error) {
	t.Helper()
	for c.Nth = c.From; ; c.Nth++ {
		without, n := trace.Forget(c)
		if n == 0 {
			t.Fatalf("%d syncs were left out one by one, and no state shows it", c.Nth)
		}
		if f := finds(t, without, 600, check); f != nil {
			t.Logf("without sync %d (of %d left out): %v", c.Nth, n, f)
			return
		}
		if c.Every {
			t.Fatalf("all %d syncs were left out, and no state shows it", n)
		}
	}
}

// TestDefaultLosesJournal shows the same for a database whose own entry is durable: that of
// the journal is not.
func TestDefaultLosesJournal(t *testing.T) {
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	k := work{mode: "DELETE"}
	c := open(t, dir+"/db", register(t, r.VFS(nil)))
	defer c.Close()
	k.setup(t, c)
	if err := r.SyncDir(dir); err != nil {
		t.Fatal(err)
	}
	r.Ack("db", 0)
	start := len(r.Trace().Ops)
	for i := 1; i <= 3; i++ {
		k.commit(t, c, i)
		r.Ack("db", i)
	}
	f := finds(t, r.Trace(), 2000, func(s *powercut.State, dir string) error {
		if s.Cut <= start {
			return nil
		}
		return stock(s, dir)
	})
	if f == nil {
		t.Fatal("no commit was lost: is the default VFS repaired?")
	}
	t.Log(f)
}
