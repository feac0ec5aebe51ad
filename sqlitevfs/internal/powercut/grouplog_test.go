// SPDX-License-Identifier: MIT

package powercut_test

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/powercut"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/sqlitevfs"
	"github.com/ringside-io/ringside/sqlitevfs/internal/grouplog"
	sqlitecut "github.com/ringside-io/ringside/sqlitevfs/internal/powercut"
)

// logged checks states after the log was replayed.
func logged(names ...string) func(*powercut.State, string) error {
	return func(s *powercut.State, dir string) error {
		r, err := replay(s, dir)
		// The next batch records that a WAL was removed or restarted.
		if err == nil && r.Superseded+r.Invalid > 0 {
			err = fmt.Errorf("commits of the log were not replayed: %+v", r.Skipped)
		}
		if err != nil {
			return err
		}
		return judgeAll(s, dir, names...)
	}
}

func replay(s *powercut.State, dir string) (grouplog.Report, error) {
	o := grouplog.Options{FS: sqlitecut.StateFS()}
	if !s.Has("ringside-wal.log") {
		return grouplog.Report{}, nil
	}
	r, err := grouplog.Recover(dir, o)
	if err == nil {
		err = r.Pending()
	}
	return r, err
}

// recordLogged runs a workload on several databases that share a log: in turn, or at the
// same time.
func recordLogged(t *testing.T, k work, together bool, names ...string) *powercut.Trace {
	t.Helper()
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	v := r.VFS(nil)
	if k.large {
		v.MaxRecord = 15 << 10
	}
	v.Choose = k.choose
	base := register(t, v)
	if err := sqlitevfs.Register(base+"-ours", sqlitevfs.Options{Base: base, GroupLog: sqlitevfs.On}); err != nil {
		t.Fatal(err)
	}
	if together {
		var wg sync.WaitGroup
		for _, name := range names {
			wg.Go(func() { k.run(t, r, dir, name, base+"-ours") })
		}
		wg.Wait()
		return r.Trace()
	}
	var turns []func(i int)
	for _, name := range names {
		c := open(t, filepath.Join(dir, name), base+"-ours")
		defer c.Close()
		k.setup(t, c)
		r.Ack(name, 0)
		turns = append(turns, func(i int) {
			k.commit(t, c, i)
			r.Ack(name, i)
		})
	}
	for i := 1; i <= k.commits; i++ {
		for _, turn := range turns {
			turn(i)
		}
	}
	return r.Trace()
}

// TestGroupLog cuts the power of databases that share a log, which wraps around several
// times, with checkpoints in between.
// Promise: sqlitevfs/committed-transaction-found
func TestGroupLog(t *testing.T) {
	for _, k := range []struct {
		name     string
		work     work
		together bool
		dbs      []string
	}{
		{"one", work{commits: 12}, false, []string{"db"}},
		{"one-choice", work{commits: 12, choose: true}, false, []string{"db"}},
		{"rare-checkpoints-choice", work{commits: 12, choose: true, extra: "PRAGMA wal_autocheckpoint=20"}, false, []string{"db"}},
		{"large-between-choice", work{commits: 6, large: true, choose: true}, false, []string{"db"}},
		{"spill", work{commits: 8, spill: true}, false, []string{"db"}},
		{"rare-checkpoints", work{commits: 12, extra: "PRAGMA wal_autocheckpoint=100"}, false, []string{"db"}},
		{"large-between", work{commits: 6, large: true}, false, []string{"db"}},
		{"large-rare-checkpoints", work{commits: 4, large: true, extra: "PRAGMA wal_autocheckpoint=0"}, false, []string{"db"}},
		{"three", work{commits: 5}, false, []string{"a", "b", "c"}},
		{"together", work{commits: 5}, true, []string{"a", "b", "c", "d"}},
	} {
		t.Run(k.name, func(t *testing.T) {
			k.work.mode = "WAL"
			k.work.commits = fewer(k.work.commits)
			explore(t, recordLogged(t, k.work, k.together, k.dbs...), ringtest.Rounds(600, 300), logged(k.dbs...))
		})
	}
}

// TestGroupLogNormal uses synchronous=NORMAL, where the sync before a checkpoint follows
// commits: commits may be lost, but the database must not be damaged.
func TestGroupLogNormal(t *testing.T) {
	k := work{mode: "WAL", commits: fewer(10), extra: "PRAGMA synchronous=NORMAL"}
	explore(t, recordLogged(t, k, false, "db"), 400, func(s *powercut.State, dir string) error {
		if _, err := replay(s, dir); err != nil {
			return err
		}
		s.Acked = nil
		return judgeAll(s, dir, "db")
	})
}

// TestGroupLogTwo checkpoints with another connection than the one that commits, sometimes
// during commits.
func TestGroupLogTwo(t *testing.T) {
	dir := fastDir(t)
	r := sqlitecut.NewRecorder(dir)
	base := register(t, r.VFS(nil))
	if err := sqlitevfs.Register(base+"-ours", sqlitevfs.Options{Base: base, GroupLog: sqlitevfs.On}); err != nil {
		t.Fatal(err)
	}
	c, other := open(t, dir+"/db", base+"-ours"), open(t, dir+"/db", base+"-ours")
	defer c.Close()
	defer other.Close()
	k := work{mode: "WAL", extra: "PRAGMA wal_autocheckpoint=0"}
	k.setup(t, c)
	r.Ack("db", 0)
	exec(t, other, "PRAGMA synchronous=FULL")
	var wg sync.WaitGroup
	for i := 1; i <= fewer(10); i++ {
		k.commit(t, c, i)
		r.Ack("db", i)
		if i%3 == 0 {
			wg.Wait()
			wg.Go(func() {
				if err := other.Exec("PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	explore(t, r.Trace(), 400, logged("db"))
}

// TestGroupLogStockFirst opens the files with stock SQLite before the replay. Stock SQLite
// may miss commits, but must find no other error, before and after the replay. With
// synchronous=NORMAL, a checkpoint's sync looks like that of a commit.
func TestGroupLogStockFirst(t *testing.T) {
	for _, level := range []string{"FULL", "NORMAL"} {
		t.Run(level, func(t *testing.T) {
			k := work{mode: "WAL", commits: max(4, fewer(10)), extra: "PRAGMA synchronous=" + level}
			missed := 0
			explore(t, recordLogged(t, k, false, "db"), 400, func(s *powercut.State, dir string) error {
				if err := judgeAll(s, dir, "db"); err != nil {
					missed++
				}
				acked := s.Acked
				s.Acked = nil
				defer func() { s.Acked = acked }()
				if err := judgeAll(s, dir, "db"); err != nil {
					return err
				}
				if _, err := replay(s, dir); err != nil {
					return err
				}
				return judgeAll(s, dir, "db")
			})
			if missed == 0 {
				t.Error("stock SQLite missed no commit: was the log used?")
			}
		})
	}
}

// TestGroupLogSeeded leaves out syncs of a database that has a log: of a write of the log, of the
// WAL before a checkpoint, of the WAL before the log reuses its space, and of a commit that is too
// large for the log. (The first three syncs of the WAL are those of its header, of the tables, and
// of its claim.)
// Promise: sqlitevfs/power-cut-tests
// Promise: tests/missing-sync-found
func TestGroupLogSeeded(t *testing.T) {
	if testing.Short() {
		t.Skip("checks another test, not the product: not with -short")
	}
	for _, p := range []leftOut{
		{"large", work{mode: "WAL", commits: 4, large: true, extra: "PRAGMA wal_autocheckpoint=0"}, powercut.Class{Suffix: "-wal", From: 3}},
		{"log", work{mode: "WAL", commits: 4}, powercut.Class{Suffix: ".log", Through: true, From: 2}},
		{"wal-checkpoint", work{mode: "WAL", commits: 8}, powercut.Class{Suffix: "-wal", From: 4}},
		{"wal-wrap", work{mode: "WAL", commits: 12, extra: "PRAGMA wal_autocheckpoint=1000"}, powercut.Class{Suffix: "-wal", From: 3}},
		{"directory", work{mode: "WAL", commits: 1}, powercut.Class{Suffix: "/", Every: true}},
	} {
		t.Run(p.name, func(t *testing.T) {
			leaveOut(t, recordLogged(t, p.work, false, "db"), p.class, logged("db"))
		})
	}
}

// TestGroupLogMix checks that the workloads with large commits have logged commits between
// others.
func TestGroupLogMix(t *testing.T) {
	dir := fastDir(t)
	v := sqlitecut.NewRecorder(dir).VFS(nil)
	v.MaxRecord = 15 << 10
	base := register(t, v)
	if err := sqlitevfs.Register(base+"-ours", sqlitevfs.Options{Base: base, GroupLog: sqlitevfs.On}); err != nil {
		t.Fatal(err)
	}
	c := open(t, filepath.Join(dir, "db"), base+"-ours")
	defer c.Close()
	k := work{mode: "WAL", large: true, extra: "PRAGMA wal_autocheckpoint=0"}
	k.setup(t, c)
	last := uint64(0)
	for i := 1; i <= 9; i++ {
		k.commit(t, c, i)
		logged := uint64(0)
		for _, s := range sqlitevfs.Databases() {
			if s.Path == filepath.Join(dir, "db") {
				logged = s.Logged
			}
		}
		if (logged == last) != (i%3 == 0) {
			t.Errorf("commit %d: %d were logged, %d before", i, logged, last)
		}
		last = logged
	}
}
