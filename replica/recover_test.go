// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// TestRecover: two of three members are lost. Recover makes a cluster of the third one, with all that it
// has, also if it was interrupted. Others join with empty directories, and members of the
// old cluster are refused.
//
// Promise: replica/recover
func TestRecover(t *testing.T) {
	for _, snapshot := range []bool{false, true} {
		t.Run(map[bool]string{false: "log", true: "snapshot"}[snapshot], func(t *testing.T) {
			c := newCluster(t, 3, Options{Election: 2 * time.Second})
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
			execAll(t, open(t, leader, "deleted"), "CREATE TABLE t(x)")
			must(t, leader.Delete(t.Context(), "deleted"))
			followers := c.followers()
			survivor := followers[0]
			caughtUp(t, leader, "db", survivor)
			if snapshot {
				must(t, survivor.raft.Snapshot().Error())
			}
			for range 20 {
				execAll(t, db, "INSERT INTO t VALUES(2)")
			}
			caughtUp(t, leader, "db", survivor)
			old := survivor.Status()
			id, lost := survivor.ID(), followers[1].ID()
			for other := range c.addrs {
				c.stop(other)
			}
			o := c.options(id)
			o.Peers = nil

			refused := errors.New("not accepted")
			var said string
			err := Recover(o, func(l Loss) error {
				said = l.String()
				return refused
			})
			if !errors.Is(err, refused) || !strings.Contains(said, old.Cluster) || !strings.Contains(said, c.addrs[lost]) || !strings.Contains(said, "LOST") {
				t.Errorf("%v: %s", err, said)
			}
			// An interruption leaves a directory that is only opened by Recover.
			n, err := newNode(o)
			must(t, err)
			must(t, n.openLog())
			n.membership.moving, n.membership.renewed = true, 77
			must(t, errors.Join(n.membership.save(), n.Close()))
			if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "interrupted") {
				t.Errorf("a recovery that was interrupted: %v", err)
			}
			must(t, Recover(o, func(Loss) error { return nil }))
			must(t, Recover(o, func(Loss) error { return nil })) // it is one of its own now

			single := c.open(o)
			if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != "21" {
				t.Errorf("%s rows", got)
			}
			s := single.Status()
			if s.Cluster == old.Cluster || len(s.Members) != 1 || strings.Join(single.List(), " ") != "db" {
				t.Errorf("%+v", s)
			}
			stray, err := Open(c.options(lost)) // with its old directory
			must(t, err)
			ctx, cancel := contextFor(t)
			defer cancel()
			for from, to := range map[*Node]*Node{stray: single, single: stray} {
				conn, err := from.wire.dial(ctx, peer{to.ID(), to.Address()}, kindRaft)
				if err == nil {
					conn.Close()
				}
				if err == nil || !strings.Contains(err.Error(), "cluster") {
					t.Errorf("a member of the old cluster was not refused: %v", err)
				}
			}
			must(t, stray.Close())
			must(t, os.RemoveAll(filepath.Join(c.dir, lost)))
			o = c.options(lost)
			o.Peers = nil
			c.open(o)
			must(t, c.leader().AddMember(ctx, lost, c.addrs[lost]))
			execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(3)")
			c.judge()
		})
	}
}

// TestRecoverNothing: a directory without a node, and one of a node that was never a member.
func TestRecoverNothing(t *testing.T) {
	o := Options{ID: "a", Dir: t.TempDir(), Listen: freeAddress(t)}
	confirm := func(Loss) error { t.Error("there is nothing to confirm"); return nil }
	if err := Recover(o, confirm); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	n, err := Open(o)
	must(t, err)
	if err := Recover(o, confirm); err == nil {
		t.Error("a node that runs was recovered")
	}
	must(t, n.Close())
	if err := Recover(o, confirm); err == nil || !strings.Contains(err.Error(), "never a member") {
		t.Error(err)
	}
}

// TestImport: an SQLite file of each journal mode becomes a database on all nodes, also while it is open.
//
// Promise: replica/import
func TestImport(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	dir := t.TempDir()
	for _, mode := range []string{"delete", "wal"} {
		file := filepath.Join(dir, mode)
		s, err := sqlite3.Open(vfsURI(file))
		must(t, err)
		must(t, s.Exec("PRAGMA page_size=1024; PRAGMA journal_mode="+mode+"; CREATE TABLE t(x); CREATE INDEX i ON t(x); INSERT INTO t VALUES('"+mode+"')"))
		must(t, leader.Import(t.Context(), "in/"+mode, file))
		must(t, s.Close())
		for _, n := range c.all() {
			caughtUp(t, leader, "in/"+mode, n)
			if got := value(t, open(t, n, "in/"+mode, Stale(0)), "SELECT x FROM t"); got != mode {
				t.Errorf("%s: %q", n.ID(), got)
			}
		}
		execAll(t, open(t, leader, "in/"+mode), "INSERT INTO t VALUES('more')", "PRAGMA wal_checkpoint(TRUNCATE)")
		if err := leader.Import(t.Context(), "in/"+mode, file); !errors.Is(err, os.ErrExist) {
			t.Errorf("imported twice: %v", err)
		}
	}
	must(t, os.WriteFile(filepath.Join(dir, "text"), []byte(strings.Repeat("no database\n", 500)), 0o600))
	for _, name := range []string{"text", "missing"} {
		if err := leader.Import(t.Context(), name, filepath.Join(dir, name)); err == nil {
			t.Errorf("%s was imported", name)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "missing")); !errors.Is(err, os.ErrNotExist) {
		t.Error("a missing file was made")
	}
	if err := c.followers()[0].Import(t.Context(), "x", filepath.Join(dir, "wal")); err == nil {
		t.Error("a follower imported")
	}
	c.judge()
	for id := range c.addrs {
		c.stop(id)
		stock(t, filepath.Join(c.dir, id, "data", "in", "wal"))
	}
}

// TestHandOver: a leader that is closed transfers the leadership first. No commit is uncertain, and the others do
// not wait for an election.
//
// Promise: replica/close-transfers
func TestHandOver(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)")
	c.judge()
	begin := time.Now()
	c.stop(leader.ID())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for _, n := range c.all() {
		if _, _, err := n.WaitLeader(ctx); err != nil {
			t.Error(err)
		}
	}
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(1)")
	if took := time.Since(begin); took > c.base.Election/2 { // an election begins then
		t.Errorf("another leader after %v", took)
	}
}
