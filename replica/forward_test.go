// SPDX-License-Identifier: MIT

package replica

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"
)

// TestForward runs statements of followers on the leader: values, results and errors arrive
// as they do on the leader.
// Promise: replica/forwarded-statement-results
// Promise: replica/outside-transaction-exec
func TestForward(t *testing.T) {
	limits := forwardLimits{size(1<<20, forwardStatement), size(6<<20, forwardRows)}
	c := newCluster(t, 3, Options{Forward: true, MaxTransaction: 2 << 20, forwards: limits})
	leader := c.leader()
	ctx := t.Context()
	db := open(t, c.followers()[0], "db")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v, at DATETIME)")
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000000, time.UTC)
	for i, v := range []any{nil, int64(math.MinInt64), math.Inf(-1), "text \x00 \xff", []byte{0, 1, 255}, []byte{}, true} {
		r, err := db.ExecContext(ctx, "INSERT INTO t VALUES(:id, :v, :at)", sql.Named("at", at), sql.Named("v", v), sql.Named("id", i))
		must(t, err)
		id, _ := r.LastInsertId()
		n, _ := r.RowsAffected()
		if id != int64(i) || n != 1 {
			t.Errorf("row %d, %d changes", id, n)
		}
		read := func(db *sql.DB) string {
			var v any
			var at time.Time
			must(t, db.QueryRowContext(ctx, "SELECT v, at FROM t WHERE id=?", i).Scan(&v, &at))
			return fmt.Sprintf("%T %#v %v", v, v, at)
		}
		if got, want := read(db), read(open(t, leader, "db")); got != want {
			t.Errorf("%#v: %s, on the leader %s", v, got, want)
		}
	}
	if got := value(t, db, "INSERT INTO t(v) VALUES('returned') RETURNING v"); got != "returned" {
		t.Error(got)
	}
	early, err := db.QueryContext(ctx, "INSERT INTO t(v) VALUES('early') RETURNING v")
	must(t, err)
	if got := value(t, open(t, leader, "db"), "SELECT count(*) FROM t WHERE v='early'"); got != "1" {
		t.Error("a forwarded query is not committed when its rows are there")
	}
	must(t, early.Close())
	if err := db.QueryRowContext(ctx, "INSERT INTO t(v) VALUES('large') RETURNING zeroblob(?)", limits.statement).Scan(new(any)); !errors.Is(err, ErrForward) {
		t.Error(err)
	}
	if got := value(t, db, "SELECT count(*) FROM t WHERE v='large'"); got != "1" {
		t.Error("a query whose result is too large is documented to be committed")
	}
	execAll(t, db, "DELETE FROM t WHERE v IN ('early', 'large')")
	stmt, err := db.PrepareContext(ctx, "SELECT v FROM t WHERE v=?")
	must(t, err)
	defer stmt.Close()
	var v string
	must(t, stmt.QueryRowContext(ctx, "returned").Scan(&v))

	// Transactions.
	tx, err := db.BeginTx(ctx, nil)
	must(t, err)
	_, err = tx.ExecContext(ctx, "DELETE FROM t")
	must(t, err)
	var n int
	must(t, tx.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(&n))
	if n != 0 {
		t.Errorf("%d rows within the transaction", n)
	}
	must(t, tx.Rollback())
	if got := value(t, db, "SELECT count(*) FROM t"); got != "8" {
		t.Errorf("%s rows after the rollback", got)
	}
	tx, err = db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	must(t, err)
	if _, err := tx.ExecContext(ctx, "DELETE FROM t"); !errors.Is(err, sqlite3.READONLY) {
		t.Errorf("a write in a read-only transaction: %v", err)
	}
	must(t, tx.Rollback())

	// Errors, and the limits.
	if _, err := db.ExecContext(ctx, "INSERT INTO t(id) VALUES(1)"); !errors.Is(err, sqlite3.CONSTRAINT_PRIMARYKEY) || !errors.Is(err, sqlite3.CONSTRAINT) {
		t.Error(err)
	}
	if _, err := db.QueryContext(ctx, "SELECT * FROM missing"); err == nil || !strings.Contains(err.Error(), "no such table") {
		t.Error(err)
	}
	if _, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(zeroblob(3000000))"); err == nil {
		t.Error("a transaction beyond the limit")
	} else if e, ok := errors.AsType[*TooLargeError](err); !ok || e.Limit != 2<<20 {
		t.Error(err)
	}
	if _, err := db.ExecContext(ctx, "INSERT INTO t(v) VALUES(?)", make([]byte, limits.statement+1)); !errors.Is(err, ErrForward) {
		t.Error(err)
	}
	if err := db.QueryRowContext(ctx, "SELECT length(?), ?1", make([]byte, limits.statement-100)).Scan(&n, new([]byte)); err != nil || n != limits.statement-100 {
		t.Errorf("%d bytes, %v", n, err)
	}
	const many = "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<%d) SELECT zeroblob(1000000) FROM s"
	rows := 0
	r, err := db.QueryContext(ctx, fmt.Sprintf(many, 5))
	must(t, err)
	for r.Next() {
		rows++
	}
	if must(t, r.Err()); rows != 5 {
		t.Errorf("%d rows", rows)
	}
	session, err := leader.forwardSession(ctx, "db")
	must(t, err)
	defer session.close()
	for _, q := range []string{fmt.Sprintf(many, limits.rows/1_000_000+3), fmt.Sprintf("SELECT zeroblob(%d)", 2*limits.statement)} {
		if _, err := session.query(ctx, q, nil, func(forwardAnswer) error { return nil }); !errors.Is(err, ErrForward) {
			t.Errorf("%s: %v", q, err)
		}
	}
	short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
	defer cancel()
	if err := db.QueryRowContext(short, "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s) SELECT count(*) FROM s").Scan(&n); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	execAll(t, db, "INSERT INTO t(v) VALUES('after')")
	c.judge()
}

// TestForwardIdle: a forwarded transaction that sends nothing does not keep the write lock.
// Promise: replica/forwarded-statement-results
func TestForwardIdle(t *testing.T) {
	c := newCluster(t, 3, Options{Forward: true})
	leader := c.leader()
	db := open(t, c.followers()[0], "db")
	must(t, pastElections(t, func() error { _, err := db.Exec("CREATE TABLE IF NOT EXISTS t(x)"); return err }))
	leader.sessions.forwardIdle.Store(int64(50 * time.Millisecond))
	ctx, cancel := contextFor(t)
	defer cancel()
	var tx *sql.Tx
	for inserted := false; !inserted; { // on a loaded machine the limit may pass before the INSERT
		var err error
		tx, err = db.BeginTx(ctx, nil)
		must(t, err)
		if _, err = tx.Exec("INSERT INTO t VALUES('idle')"); err != nil {
			t.Log(err)
			_ = tx.Rollback()
		}
		inserted = err == nil
	}
	execAll(t, open(t, leader, "db"), "INSERT INTO t VALUES('other')") // waits for the lock
	if err := tx.Commit(); err == nil {
		t.Error("the transaction was committed")
	}
	if got := value(t, db, "SELECT group_concat(x) FROM t"); got != "other" {
		t.Error(got)
	}
}

// TestDoAnywhere runs transactions by Do on all nodes while leaders are closed. Each
// transaction whose Do returned nil is there once.
// Promise: replica/commits-node
func TestDoAnywhere(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 300 * time.Millisecond})
	c.leader()
	ctx, cancel := contextFor(t)
	defer cancel()
	for created := false; !created; { // an election may make the outcome uncertain
		err := c.node("a").Do(ctx, "db", func(tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE IF NOT EXISTS t(x UNIQUE)")
			return err
		})
		if created = err == nil; !created && !errors.Is(err, ErrUncertain) {
			t.Fatal(err)
		}
	}
	total, uncertain := 0, 0
	for round := range 3 {
		id := c.leader().ID()
		for _, n := range c.all() {
			for i := range 5 {
				ran := false
				err := n.Do(ctx, "db", func(tx *sql.Tx) error {
					_, err := tx.Exec("INSERT INTO t VALUES(?)", fmt.Sprint(round, n.ID(), i))
					if i == 3 && n.ID() != id && !ran && err == nil {
						ran = true
						c.stop(id) // the transaction is open on this node
					}
					return err
				})
				switch {
				case err == nil:
					total++
				case n.ID() == id: // the node was closed
				case errors.Is(err, ErrUncertain):
					uncertain++
				default:
					t.Fatal(err)
				}
			}
		}
		if c.node(id) == nil {
			c.start(id)
		}
	}
	var got int
	must(t, pastElections(t, func() error { return open(t, c.leader(), "db").QueryRow("SELECT count(*) FROM t").Scan(&got) }))
	if got < total || got > total+uncertain+15 {
		t.Errorf("%d rows, want %d", got, total)
	}
	c.judge()
}

// deposing is a context that deposes a node when its Done is called.
type deposing struct {
	context.Context
	n *Node
}

func (c deposing) Done() <-chan struct{} {
	c.n.fitness.stuck.Store(true)
	c.n.progress.recovered.Store(true)
	return c.Context.Done()
}

// TestForwardAfterDeposed: a node that is deposed while a connection that forwards is opened, opens none to its own
// files. The pool would keep it, and could write no more.
// Promise: replica/commits-node
func TestForwardAfterDeposed(t *testing.T) {
	n := newCluster(t, 1, Options{}).leader()
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
	n.progress.recovered.Store(false) // Connect waits with the context
	k, err := (&connector{n: n, name: "db", forward: true}).Connect(deposing{t.Context(), n})
	n.fitness.stuck.Store(false)
	if _, elects := errors.AsType[*NotLeaderError](err); !elects {
		t.Errorf("%T, %v", k, err)
	}
	if k != nil {
		k.Close()
	}
}

// TestForwardedText: a forwarded statement is the one that was sent, also if it is not UTF-8, or
// is longer in JSON.
// Promise: replica/forwarded-statement-sent
func TestForwardedText(t *testing.T) {
	c := newCluster(t, 3, Options{Forward: true})
	db := open(t, c.followers()[0], "db")
	ctx, cancel := contextFor(t)
	defer cancel()
	for _, q := range []string{"CREATE TABLE t(x)", "INSERT INTO t VALUES('a\xff\xfeb')"} {
		must(t, pastElections(t, func() error { _, err := db.ExecContext(ctx, q); return err }))
	}
	var got string
	read := func() error { return db.QueryRowContext(ctx, "SELECT hex(CAST(x AS BLOB)) FROM t").Scan(&got) }
	if err := pastElections(t, read); err != nil || got != "61FFFE62" {
		t.Errorf("the row has the bytes %s, %v", got, err)
	}
	size := 0
	long := "SELECT length('" + strings.Repeat("<", 5<<20) + "') AS n"
	if err := pastElections(t, func() error { return db.QueryRowContext(ctx, long).Scan(&size) }); err != nil || size != 5<<20 {
		t.Errorf("%d characters, %v", size, err)
	}
	// The name of this column is longer than the driver of SQLite allows: only a session of the leader
	// recovers from its panic.
	long = "SELECT length('" + strings.Repeat("<", 2<<20) + "')"
	if err := pastElections(t, func() error {
		session, err := c.leader().forwardSession(ctx, "db")
		defer session.close()
		if err != nil {
			return err
		}
		var a forwardAnswer
		err = session.serve(ctx, forwardRequest{Op: forwardQuery, Query: []byte(long)}, func(got forwardAnswer) error { a = got; return nil })
		return errors.Join(err, a.Fault.unpack())
	}); !errors.Is(err, ErrForward) {
		t.Error(err)
	}
	c.judge()
}

// TestForwardedToDeadLeader: the leader is stopped or cut off, and does not answer. A call returns when
// this node knows another leader.
// Promise: replica/forwarded-statement-sent
func TestForwardedToDeadLeader(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 3 * time.Second})
	c.leader()
	n := c.followers()[0]
	for what, call := range map[string]func(*forwarded) error{
		"a commit":   func(k *forwarded) error { return forwardedTx{k, t.Context()}.Commit() },
		"a rollback": func(k *forwarded) error { return forwardedTx{k, t.Context()}.Rollback() },
	} {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		k := &forwarded{n: n, leader: "127.0.0.1:1", conn: near, in: bufio.NewReader(near), stop: func() bool { return true }}
		done := make(chan error, 1)
		go func() { done <- call(k) }()
		select {
		case err := <-done:
			_, lost := errors.AsType[*NotLeaderError](err)
			if uncertain := errors.Is(err, ErrUncertain); uncertain != (what == "a commit") || lost == uncertain {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s does not return", what)
		}
		near.Close()
	}
}

// TestContextsOfForwardedCalls: each call of a forwarded connection returns when its context ends, or that of its
// transaction, although the leader never answers.
// Promise: replica/call-returns-context
func TestContextsOfForwardedCalls(t *testing.T) {
	c := newCluster(t, 3, Options{})
	c.leader()
	n := c.followers()[0]
	leader := ""
	until(t, "the leader is known", func() bool {
		address, _ := n.raft.LeaderWithID()
		leader = string(address)
		return leader != ""
	})
	none := t.Context()
	for what, call := range map[string]func(ctx context.Context, k *forwarded) error{
		"exec": func(ctx context.Context, k *forwarded) error {
			_, err := k.ExecContext(ctx, "DELETE FROM t", nil)
			return err
		},
		"query": func(ctx context.Context, k *forwarded) error {
			_, err := k.QueryContext(ctx, "SELECT 1", nil)
			return err
		},
		"begin": func(ctx context.Context, k *forwarded) error {
			_, err := k.BeginTx(ctx, driver.TxOptions{})
			return err
		},
		"commit":   func(ctx context.Context, k *forwarded) error { return forwardedTx{k, ctx}.Commit() },
		"rollback": func(ctx context.Context, k *forwarded) error { return forwardedTx{k, ctx}.Rollback() },
		"exec in a transaction": func(ctx context.Context, k *forwarded) error {
			k.inTx, k.txCtx = true, ctx
			_, err := k.ExecContext(none, "DELETE FROM t", nil)
			return err
		},
		"query in a transaction": func(ctx context.Context, k *forwarded) error {
			k.inTx, k.txCtx = true, ctx
			_, err := k.QueryContext(none, "SELECT 1", nil)
			return err
		},
	} {
		near, far := net.Pipe()
		defer far.Close()
		go func() { _, _ = io.Copy(io.Discard, far) }()
		k := &forwarded{n: n, leader: leader, conn: near, in: bufio.NewReader(near), stop: func() bool { return true }}
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		done := make(chan error, 1)
		go func() { done <- call(ctx, k) }()
		select {
		case err := <-done:
			if what != "rollback" && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", what, err)
			}
			if commits := what == "exec" || what == "commit"; errors.Is(err, ErrUncertain) != commits {
				t.Errorf("%s: uncertain: %v: %v", what, !commits, err)
			}
		case <-time.After(30 * time.Second):
			t.Errorf("%s does not return", what)
		}
		near.Close()
	}
}

// TestDoReturnsWithItsContext: Do returns when its context ends, on the leader and on a follower, although no member
// stores the entry.
// Promise: replica/call-returns-context
func TestDoReturnsWithItsContext(t *testing.T) {
	var logs followerLogs
	c := newCluster(t, 3, Options{disk: disk{written: logs.written}})
	leader := c.leader()
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)")
	hang := make(chan struct{})
	logs.set(leader, func() error { <-hang; return nil })
	defer close(hang)
	for _, n := range c.all() {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		begin := time.Now()
		err := n.Do(ctx, "db", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO t VALUES(1)")
			return err
		})
		cancel()
		if took := time.Since(begin); err == nil || took > 20*time.Second {
			t.Errorf("%s (leads: %v): %v after %v", n.ID(), n == leader, err, took)
		}
	}
}

// TestForwardedBegin: a transaction that a forwarded statement begins does not keep the write lock either.
// Promise: replica/forwarded-statement-sent
func TestForwardedBegin(t *testing.T) {
	c := newCluster(t, 3, Options{Forward: true})
	leader := c.leader()
	leader.sessions.forwardIdle.Store(int64(50 * time.Millisecond))
	db := open(t, c.followers()[0], "db")
	execAll(t, db, "CREATE TABLE t(x)")
	kept, err := db.Conn(t.Context())
	must(t, err)
	defer kept.Close()
	_, err = kept.ExecContext(t.Context(), "BEGIN IMMEDIATE")
	must(t, err)
	ctx, cancel := contextFor(t)
	defer cancel()
	if _, err := open(t, leader, "db").ExecContext(ctx, "INSERT INTO t VALUES(1)"); err != nil {
		t.Error(err)
	}
}

// TestDoPanics: a function that panics does not leave its transaction open.
// Promise: replica/forwarded-statement-sent
func TestDoPanics(t *testing.T) {
	c := newCluster(t, 3, Options{})
	c.leader()
	for _, n := range c.all() {
		func() {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			_ = n.Do(t.Context(), "db", func(*sql.Tx) error { panic("by the test") })
		}()
		ctx, cancel := contextFor(t)
		err := n.Do(ctx, "db", func(tx *sql.Tx) error {
			_, err := tx.Exec("CREATE TABLE IF NOT EXISTS t(x)")
			return err
		})
		cancel()
		if err != nil {
			t.Errorf("after a panic on %s: %v", n.ID(), err)
		}
	}
}
