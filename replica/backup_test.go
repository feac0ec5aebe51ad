// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/ncruces/go-sqlite3"
)

// TestBackup makes a backup on a follower while the leader writes, and restores it into a
// new cluster. Damaged backups, and names that exist, are refused.
// Promise: replica/backup-complete-restored
// Promise: replica/commands-ringside-replica
func TestBackup(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	ctx, cancel := contextFor(t)
	defer cancel()
	for i := range 3 {
		must(t, leader.Create(ctx, fmt.Sprintf("dir/%d.db", i), CreateOptions{PageSize: 1024 << i}))
		execAll(t, open(t, leader, fmt.Sprintf("dir/%d.db", i)), "CREATE TABLE t(x)", fmt.Sprintf("INSERT INTO t VALUES(randomblob(%d))", 3_000_000/(1+9*i)), "INSERT INTO t VALUES('last')")
	}
	written := writer(ctx, open(t, leader, "dir/0.db"), "INSERT INTO t VALUES(1)")
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, c.followers()[0].Backup(ctx, dir))
	_, err := written()
	must(t, err)
	if err := leader.Backup(ctx, dir); err == nil {
		t.Error("a backup over another one")
	}
	for i := range 3 {
		path := filepath.Join(dir, "data", "dir", fmt.Sprintf("%d.db", i))
		copied := filepath.Join(t.TempDir(), "db")
		p, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(copied, p, 0o600))
		must(t, whole(copied))
		stock(t, copied)
	}
	if err := leader.Restore(ctx, dir); !errors.Is(err, fs.ErrExist) {
		t.Errorf("databases that exist: %v", err)
	}

	fresh := newNeighbour(c)
	to := fresh.leader()
	if err := fresh.followers()[0].Restore(ctx, dir); err == nil {
		t.Error("a follower restored")
	}
	must(t, to.Restore(ctx, dir))
	// It is repeated after an interruption: the databases that are there are kept.
	must(t, to.Delete(ctx, "dir/1.db"))
	interrupted, stop := context.WithCancel(ctx)
	stop()
	if err := to.Restore(interrupted, dir); err == nil {
		t.Error("an interrupted call restored")
	}
	noParts(t, fresh)
	must(t, to.Restore(ctx, dir))
	fresh.judge()
	if got := fmt.Sprint(to.List()); got != "[dir/0.db dir/1.db dir/2.db]" {
		t.Error(got)
	}
	for i := range 3 {
		db := open(t, to, fmt.Sprintf("dir/%d.db", i))
		if got := value(t, db, "SELECT count(*) FROM t WHERE x='last'"); got != "1" {
			t.Errorf("database %d: %s rows", i, got)
		}
		execAll(t, db, "INSERT INTO t VALUES('after')")
	}
	// A restarted node applies the log again, without the parts.
	follower := fresh.followers()[0].ID()
	fresh.stop(follower)
	fresh.start(follower)
	fresh.judge()

	// A changed file is refused, and no file is left.
	for _, name := range to.List() {
		must(t, to.Delete(ctx, name))
	}
	path := filepath.Join(dir, "data", "dir", "0.db")
	p, err := os.ReadFile(path)
	must(t, err)
	p[2000] ^= 1
	must(t, os.WriteFile(path, p, 0o600))
	if err := to.Restore(ctx, dir); err == nil || len(to.List()) != 0 {
		t.Errorf("a changed file: %v, %v", err, to.List())
	}
	noParts(t, fresh)
	if err := to.Restore(ctx, t.TempDir()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no backup: %v", err)
	}
}

// TestReadersDuringRestore reads on the followers while a database is restored in parts. One of
// the followers is restarted between the parts, and fetches the database. A reader sees no database, or
// all of it.
// Promise: replica/backup-complete-restored
func TestReadersDuringRestore(t *testing.T) {
	c := newCluster(t, 3, Options{})
	ctx, cancel := contextFor(t)
	defer cancel()
	const rows = 5 // three parts
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE whole(rows)", fmt.Sprintf("INSERT INTO whole VALUES(%d)", rows), "CREATE TABLE t(x)")
	for range rows {
		execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(randomblob(1000000))")
	}
	dir := filepath.Join(t.TempDir(), "backup")
	must(t, c.leader().Backup(ctx, dir))

	fresh := newNeighbour(c)
	leader, followers := fresh.leader(), fresh.followers()
	read := func(n *Node) (seen bool) {
		db, err := n.Open("db", Stale(-1))
		must(t, err)
		defer db.Close()
		var got string
		if err := db.QueryRowContext(ctx, "SELECT (SELECT rows FROM whole) || ' ' || (SELECT count(*) FROM t) || ' ' || (SELECT sum(length(x)) FROM t)").Scan(&got); err != nil {
			return false
		}
		if want := fmt.Sprintf("%d %[1]d %[1]d000000", rows); got != want {
			t.Errorf("a reader saw %q, want %q", got, want)
		}
		return true
	}
	for _, n := range followers {
		if read(n) {
			t.Error("read before the restore")
		}
	}
	restored := make(chan error, 1)
	go func() { restored <- leader.Restore(ctx, dir) }()
	again := followers[1].ID()
	until(t, "a follower has parts", func() bool {
		parts, _ := os.ReadDir(filepath.Join(followers[1].opts.Dir, "staging"))
		return len(parts) > 0 || read(followers[1])
	})
	fresh.stop(again)
	followers[1] = fresh.start(again)
	for _, n := range followers {
		until(t, "a follower has the database", func() bool { return read(n) })
	}
	must(t, <-restored)
	fresh.judge()
}

func noParts(t *testing.T, c *cluster) {
	t.Helper()
	for _, n := range c.all() {
		until(t, "no parts are left", func() bool {
			left, _ := os.ReadDir(filepath.Join(n.opts.Dir, "staging"))
			return len(left) == 0
		})
	}
}

// whole checks the integrity of a file whose node is stopped.
func whole(path string) error {
	c, err := sqlite3.Open("file:" + path)
	if err != nil {
		return err
	}
	defer c.Close()
	s, _, err := c.Prepare("PRAGMA integrity_check")
	if err != nil {
		return err
	}
	defer s.Close()
	if !s.Step() || s.ColumnText(0) != "ok" {
		return fmt.Errorf("%s: %s, %w", path, s.ColumnText(0), s.Err())
	}
	return nil
}
