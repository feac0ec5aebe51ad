// SPDX-License-Identifier: MIT

package replica

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"testing"
)

// TestRepairBesideUnrepairable: databases that cannot be repaired do not keep others from being repaired.
// Promise: replica/databases-cannot-repaired
func TestRepairBesideUnrepairable(t *testing.T) {
	c := newCluster(t, 1, Options{Logger: slog.New(slog.DiscardHandler)})
	n := c.leader()
	for i := range 9 {
		execAll(t, open(t, n, fmt.Sprint(i)), "CREATE TABLE t(x)")
	}
	for i := range 9 {
		db, err := n.catalog.named(fmt.Sprint(i))
		must(t, err)
		db.mu.Lock()
		if i < 8 {
			db.pos.Sum ^= 1 // no state of the log has this checksum
		}
		db.fail(errors.New("damaged by the test"))
		db.mu.Unlock()
	}
	last, err := n.catalog.named("8")
	must(t, err)
	until(t, "the last one is repaired", func() bool {
		last.mu.Lock()
		defer last.mu.Unlock()
		return last.broken == nil
	})
}

// TestChangedWhileOpen: a file that another program changes while the node uses it is found by Verify, and
// repaired.
// Promise: replica/databases-cannot-repaired
func TestChangedWhileOpen(t *testing.T) {
	c := newCluster(t, 3, Options{Logger: slog.New(slog.DiscardHandler)})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(randomblob(20000))")
	c.judge()
	victim := c.followers()[0]
	d, err := victim.catalog.named("db")
	must(t, err)
	d.mu.Lock()
	err = d.pages.keeper.Exec("PRAGMA wal_checkpoint(TRUNCATE)")
	d.mu.Unlock()
	must(t, err)
	f, err := os.OpenFile(d.path, os.O_RDWR, 0)
	must(t, err)
	_, err = f.WriteAt([]byte("changed"), 3*4096+1000)
	must(t, errors.Join(err, f.Close()))
	ctx, cancel := contextFor(t)
	defer cancel()
	if err := leader.Verify(ctx); !errors.Is(err, ErrDiffer) || !strings.Contains(err.Error(), "db on "+victim.ID()) {
		t.Errorf("Verify: %v", err)
	}
	until(t, "the database is repaired", func() bool { s := victim.Stats(); return s.Fetched+s.Redone > 0 })
	c.judge()
}

// TestImageOfDeleted: a request for a database ends when the database is deleted.
func TestImageOfDeleted(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
	db, err := n.catalog.named("db")
	must(t, err)
	ctx, cancel := contextFor(t)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		_, _, _, err := n.repairs.imageOf(ctx, db.id, 1000)
		done <- err
	}()
	must(t, n.Delete(ctx, "db"))
	if err := <-done; !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
}

// TestFetchOfDeleted: a database that was deleted while it was fetched does not take the place of
// later ones.
func TestFetchOfDeleted(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	must(t, n.Create(t.Context(), "a", CreateOptions{}))
	db, err := n.catalog.named("a")
	must(t, err)
	must(t, n.Delete(t.Context(), "a"))
	execAll(t, open(t, n, "a/b"), "CREATE TABLE t(x)")
	if err := db.makeRoom(); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	c.judge()
}
