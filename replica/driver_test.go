// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// TestDeposedLeaderExec: the result of a statement that changes nothing is a read. A leader that has not
// heard of its successor must not return it.
// Promise: replica/what-leader-answers
func TestDeposedLeaderExec(t *testing.T) {
	c := newDeposable(t)
	tx, err := c.db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	c.cut()
	c.awaitSuccessor()
	c.d.ask() // the members answer with their terms; a hears nothing else of its successor
	const compareAndSwap = "UPDATE t SET x='newer' WHERE x='new'"
	for what, exec := range map[string]func(context.Context, string, ...any) (sql.Result, error){"a statement": c.db.ExecContext, "a transaction": tx.ExecContext} {
		if r, err := exec(t.Context(), compareAndSwap); err == nil {
			n, _ := r.RowsAffected()
			t.Errorf("%s on the deposed leader: %d rows affected, want 1 or an error", what, n)
		}
	}
	c.heal()
}

// TestTwoQueriesInATransaction: the end of one query does not end another one.
func TestTwoQueriesInATransaction(t *testing.T) {
	c := newCluster(t, 1, Options{})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1), (2), (3)")
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	first, err := tx.QueryContext(t.Context(), "SELECT x FROM t")
	must(t, err)
	first.Next()
	second, err := tx.QueryContext(t.Context(), "SELECT x FROM t")
	must(t, err)
	second.Next()
	must(t, first.Close())
	rows := 1
	for second.Next() {
		rows++
	}
	if err := second.Err(); err != nil || rows != 3 {
		t.Errorf("%d rows, %v", rows, err)
	}
	must(t, second.Close())
	must(t, tx.Commit())
}

// TestWriterBesideApply: while apply holds the database's mutex and waits for the writer's lock, a
// connection that was ended releases that lock. It must not wait for the mutex.
func TestWriterBesideApply(t *testing.T) {
	const endless = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s) SELECT count(*) FROM s"
	for name, call := range map[string]func(*sql.Tx) error{
		"in a query":  func(tx *sql.Tx) error { return tx.QueryRow(endless).Scan(new(int)) },
		"in a commit": func(tx *sql.Tx) error { return tx.Commit() },
	} {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 1, Options{})
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
			d, err := leader.catalog.named("db")
			must(t, err)
			tx, err := db.BeginTx(t.Context(), nil)
			must(t, err)
			_, err = tx.Exec("INSERT INTO t VALUES(2)")
			must(t, err)
			leader.sessions.mu.Lock()
			var k *conn
			for k = range leader.sessions.conns {
			}
			leader.sessions.mu.Unlock()
			d.mu.Lock() // as apply does
			result := make(chan error, 1)
			go func() { result <- call(tx) }()
			until(t, "the call runs", func() bool {
				if k.mu.TryLock() {
					k.mu.Unlock()
					return false
				}
				return true
			})
			leader.sessions.evict(d)
			free := false
			for end := time.Now().Add(patience); !free && time.Now().Before(end); time.Sleep(time.Millisecond) {
				free, err = tryLock(d.pages.shm, lockWrite)
				must(t, err)
			}
			if !free {
				t.Error("the connection keeps the writer's lock")
			} else {
				must(t, unlock(d.pages.shm, lockWrite))
			}
			d.mu.Unlock()
			if err := <-result; err == nil || errors.Is(err, ErrUncertain) {
				t.Errorf("the call: %v", err)
			}
			_ = tx.Rollback()
			if got := value(t, db, "SELECT count(*) FROM t"); got != "1" {
				t.Errorf("%s rows", got)
			}
		})
	}
}

// TestReaderOfBrokenFile: a connection that a program keeps does not read a file that was found to differ.
func TestReaderOfBrokenFile(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader, n := c.leader(), c.followers()[0]
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	caughtUp(t, leader, "db", n)
	db := open(t, n, "db", Stale(-1))
	kept, err := db.Conn(t.Context())
	must(t, err)
	defer kept.Close()
	must(t, kept.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(new(int)))
	d, err := n.catalog.named("db")
	must(t, err)
	d.mu.Lock()
	d.fail(errors.New("found to differ by the test"))
	d.mu.Unlock()
	if err := kept.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(new(int)); err == nil {
		t.Error("the file was read")
	}
	until(t, "the repaired file is read", func() bool {
		return db.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(new(int)) == nil
	})
	c.judge()
}

// TestCommitWithoutStorage: the followers answer heartbeats and cannot store entries. A write returns when
// its context ends, and its transaction is later there as a whole or not at all.
// Promise: replica/call-returns-context
func TestCommitWithoutStorage(t *testing.T) {
	var logs followerLogs
	c := newCluster(t, 3, Options{disk: disk{written: logs.written}})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	logs.set(leader, func() error { return io.ErrShortWrite })
	write := map[string]func(context.Context, string) error{
		"a statement": func(ctx context.Context, s string) error {
			_, err := db.ExecContext(ctx, s)
			return err
		},
		"a transaction": func(ctx context.Context, s string) error { return atomically(ctx, db, s) },
		"a result": func(ctx context.Context, s string) error {
			return db.QueryRowContext(ctx, s+" RETURNING x").Scan(new(any))
		},
	}
	uncertain, logged, term := "", leader.raft.LastIndex(), leader.raft.CurrentTerm()
	for what, f := range write {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		done := make(chan error, 1)
		go func() { done <- f(ctx, "INSERT INTO t VALUES('"+what+"')") }()
		select {
		case err := <-done:
			// Later transactions of the database are not proposed while the outcome of the first one is unknown.
			ended := errors.Is(err, context.DeadlineExceeded) || errors.Is(err, sqlite3.INTERRUPT) || errors.Is(err, sqlite3.BUSY)
			if errors.Is(err, ErrUncertain) && uncertain != "" || !ended {
				t.Errorf("%s: %v", what, err)
			}
			if errors.Is(err, ErrUncertain) {
				uncertain = what
			}
		case <-time.After(patience):
			t.Errorf("%s does not return although its context has ended", what)
		}
		cancel()
	}
	transactions := 0 // the leader may also log that it was elected again, or the directory of a member that answers late
	for i, last := logged+1, leader.raft.LastIndex(); i <= last; i++ {
		for _, o := range operations(t, leader, i) {
			if o.kind == opTxn {
				transactions++
			}
		}
	}
	if leads := leader.role.leader(); transactions > 1 && leads != nil && leads.term == term {
		t.Errorf("%d transactions were proposed", transactions)
	}
	logs.reset()
	until(t, "the leader writes again", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := open(t, c.leader(), "db").ExecContext(ctx, "INSERT INTO t VALUES('after')")
		return err == nil
	})
	got := value(t, open(t, c.leader(), "db"), "SELECT coalesce(group_concat(x), '') FROM t WHERE x<>'after'")
	if got != "" && got != uncertain {
		t.Errorf("the rows %q are there, and the outcome of %q was unknown", got, uncertain)
	}
	c.judge()
}

// TestCommitWithoutDeadline: writes without a deadline return although the followers, which answer, never store
// an entry.
func TestCommitWithoutDeadline(t *testing.T) {
	var logs followerLogs
	c := newCluster(t, 3, Options{disk: disk{written: logs.written}, stall: 300 * time.Millisecond})
	leader := c.leader()
	one, other := open(t, leader, "one"), open(t, leader, "other")
	for _, db := range []*sql.DB{one, other} {
		until(t, "a table", func() bool { // a busy machine may need longer than stall
			_, err := db.ExecContext(t.Context(), "CREATE TABLE IF NOT EXISTS t(x)")
			return err == nil
		})
	}
	c.judge()
	logs.set(leader, func() error { return syscall.ENOSPC })
	term := leader.raft.CurrentTerm()
	insert := func(db *sql.DB) func() error {
		return func() error {
			_, err := db.ExecContext(context.Background(), "INSERT INTO t VALUES(1)")
			return err
		}
	}
	for _, call := range []struct {
		what      string
		f         func() error
		uncertain bool
	}{
		{"a write", insert(one), true},
		{"a later write", insert(one), false}, // it is not proposed
		{"a transaction", func() error { return atomically(context.Background(), other, "INSERT INTO t VALUES(1)") }, true},
		{"Create", func() error { return leader.Create(context.Background(), "new", CreateOptions{}) }, true},
		{"RemoveMember", func() error { return leader.RemoveMember(context.Background(), c.followers()[0].ID()) }, true},
	} {
		done := make(chan error, 1)
		go func() { done <- call.f() }()
		select {
		case err := <-done:
			if leads := leader.role.leader(); leads == nil || leads.term != term {
				t.Logf("the leader has changed: %s: %v", call.what, err)
			} else if err == nil || errors.Is(err, ErrUncertain) != call.uncertain || !strings.Contains(err.Error(), "nothing was committed for") {
				t.Errorf("%s: %v", call.what, err)
			}
		case <-time.After(patience):
			t.Fatalf("%s does not return", call.what)
		}
	}
	logs.reset()
	for _, db := range []string{"one", "other"} {
		until(t, "the leader writes again", func() bool {
			_, err := open(t, c.leader(), db).ExecContext(t.Context(), "INSERT INTO t VALUES(2)")
			return err == nil
		})
	}
	c.judge()
}

// TestContextOfARead: a read that waits for the answer of a majority returns when its context ends.
// Promise: replica/call-returns-context
func TestContextOfARead(t *testing.T) {
	d := new(delayer)
	c := newCluster(t, 3, Options{around: d.around})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	d.hold()
	defer d.pass()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	begin := time.Now()
	err := db.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int))
	if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took > c.base.Election*2/5 { // the leader steps down after half of it
		t.Errorf("after %v: %v", took, err)
	}
}

// TestConnectionsAfterClose: connections that other goroutines use while the node is closed get errors.
// Promise: replica/calls-beside-close
func TestConnectionsAfterClose(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	db := open(t, n, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	kept, err := db.Conn(t.Context())
	must(t, err)
	defer kept.Close()
	d, err := n.catalog.named("db")
	must(t, err)
	opened, err := sqlite3.OpenFlags(d.keeperURI(), sqlite3.OPEN_READWRITE|sqlite3.OPEN_URI)
	must(t, err)
	defer opened.Close()
	c.stop("a")
	t.Log(opened.Exec("SELECT count(*) FROM t")) // as a call that had begun before Close
	for what, err := range map[string]error{
		"a kept connection": kept.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(new(int)),
		"a new connection":  db.QueryRowContext(t.Context(), "SELECT count(*) FROM t").Scan(new(int)),
		"Verify":            n.Verify(t.Context()),
		"Backup":            n.Backup(t.Context(), filepath.Join(t.TempDir(), "backup")),
		"Create":            n.Create(t.Context(), "other", CreateOptions{}),
	} {
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestDriver opens databases by the names of drivers and of data sources.
func TestDriver(t *testing.T) {
	c := newCluster(t, 3, Options{})
	register := func(n *Node) (name string) {
		name = "driver of " + n.catalog.vfsName
		sql.Register(name, n.Driver())
		return name
	}
	leader, follower := register(c.leader()), register(c.followers()[0])
	db, err := sql.Open(leader, "file:tenants/42.db")
	must(t, err)
	defer db.Close()
	execAll(t, db, "CREATE TABLE t(v)", "INSERT INTO t VALUES('seen')")
	if _, ok := db.Driver().(nodeDriver); !ok {
		t.Errorf("the driver of a database is a %T", db.Driver())
	}
	stale, err := sql.Open(follower, "tenants/42.db?stale=0s")
	must(t, err)
	defer stale.Close()
	if got := value(t, stale, "SELECT v FROM t"); got != "seen" {
		t.Errorf("read %q on a follower", got)
	}
	if _, err := stale.ExecContext(t.Context(), "DELETE FROM t"); err == nil {
		t.Error("a connection with a bound wrote")
	}
	for source, want := range map[string]string{
		"file:a?mode=ro": `"mode"`,
		"a?stale=soon":   `"soon"`,
		"a?stale=%":      "URL escape",
		"../a":           "not a name",
	} {
		if _, err := sql.Open(leader, source); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %s", source, err, want)
		}
	}
}

// TestStaleOfNewDatabase opens databases on a follower that may not know them yet.
func TestStaleOfNewDatabase(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	for i := range 30 {
		name := fmt.Sprintf("%d.db", i)
		must(t, leader.Create(t.Context(), name, CreateOptions{}))
		for _, n := range c.nodes {
			db, err := n.Open(name, Stale(0))
			must(t, err)
			if err := pastElections(t, func() error { return db.PingContext(t.Context()) }); err != nil {
				t.Fatalf("%s on %s: %v", name, n.opts.ID, err)
			}
			must(t, db.Close())
		}
	}
}
