// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

func open(t testing.TB, n *Node, name string, o ...OpenOption) *sql.DB {
	t.Helper()
	db, err := n.Open(name, o...)
	must(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func execAll(t testing.TB, db *sql.DB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.ExecContext(t.Context(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}

func value(t testing.TB, db *sql.DB, query string) (v string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), query).Scan(&v); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// TestThreeNodes writes on the leader and reads on all nodes, with large transactions,
// schema changes, VACUUM, triggers and rollbacks.
// Promise: replica/nodes-pages-stock
func TestThreeNodes(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "tenants/42.db")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, v)", "INSERT INTO t VALUES(1, 'one')",
		"CREATE TABLE log(n)", "CREATE TRIGGER tr AFTER INSERT ON t BEGIN INSERT INTO log VALUES(random()); END",
		"WITH RECURSIVE s(i) AS (SELECT 2 UNION ALL SELECT i+1 FROM s WHERE i<20000) INSERT INTO t SELECT i, hex(randomblob(20)) FROM s",
		"CREATE INDEX i ON t(v)", "DELETE FROM t WHERE id%3=0", "VACUUM",
		"PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE t SET v='two' WHERE id=2")
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.ExecContext(t.Context(), "DELETE FROM t")
	must(t, err)
	must(t, tx.Rollback())
	if got := value(t, db, "INSERT INTO t(v) VALUES('three') RETURNING v"); got != "three" {
		t.Error(got)
	}
	caughtUp(t, leader, "tenants/42.db", c.followers()...)
	want := value(t, db, "SELECT count(*)||','||(SELECT v FROM t WHERE id=2)||','||(SELECT count(*) FROM log) FROM t")
	for _, n := range c.followers() {
		read := open(t, n, "tenants/42.db", Stale(-1))
		if got := value(t, read, "SELECT count(*)||','||(SELECT v FROM t WHERE id=2)||','||(SELECT count(*) FROM log) FROM t"); got != want {
			t.Errorf("%s has %s, want %s", n.ID(), got, want)
		}
		if got := value(t, read, "PRAGMA integrity_check"); got != "ok" {
			t.Errorf("%s: %s", n.ID(), got)
		}
		if _, err := read.ExecContext(t.Context(), "DELETE FROM t"); err == nil {
			t.Error("a follower took a write")
		}
		_, err := open(t, n, "tenants/42.db").ExecContext(t.Context(), "DELETE FROM t")
		if e, ok := errors.AsType[*NotLeaderError](err); !ok || e.Leader != leader.ID() || e.Address != leader.Address() {
			t.Errorf("a write on a follower: %v", err)
		}
		for _, q := range []string{"DELETE FROM missing", "SELECT x FROM missing"} {
			// The state of this node may be old: no check.
			rows, err := open(t, n, "tenants/42.db").QueryContext(t.Context(), q)
			if e, ok := errors.AsType[*NotLeaderError](err); !ok || e.Leader != leader.ID() {
				t.Errorf("%s on a follower: %v, %v", q, rows, err)
			}
		}
		err = open(t, n, "tenants/42.db").QueryRowContext(t.Context(), "SELECT 1").Scan(new(int))
		if _, ok := errors.AsType[*NotLeaderError](err); !ok {
			t.Errorf("a read without a bound on a follower: %v", err)
		}
		fresh := open(t, n, "tenants/42.db", Stale(0))
		if got := value(t, fresh, "SELECT v FROM t WHERE id=2"); got != "two" {
			t.Error(got)
		}
	}
	c.judge()
	for id := range c.addrs {
		c.stop(id)
		stock(t, filepath.Join(c.dir, id, "data", "tenants", "42.db"))
	}
}

// stock checks a file with SQLite's own program.
func stock(t testing.TB, path string) {
	t.Helper()
	program, err := exec.LookPath("sqlite3")
	if err != nil {
		t.Log("sqlite3 is not installed; stock SQLite does not look at the files")
		return
	}
	out, err := exec.Command(program, path, "PRAGMA integrity_check").CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != "ok" {
		t.Errorf("sqlite3 on %s: %v\n%s", path, err, out)
	}
}

// Promise: replica/databases-created-deleted
func TestCreateListDelete(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	ctx := t.Context()
	for _, name := range []string{"a.db", "dir/b.db"} {
		must(t, leader.Create(ctx, name, CreateOptions{PageSize: 1024, AutoVacuum: true}))
	}
	if err := leader.Create(ctx, "a.db", CreateOptions{}); !errors.Is(err, fs.ErrExist) {
		t.Error(err)
	}
	for _, name := range []string{"", ".", "../x", "/x", "x-wal", "a//b", "x?y"} {
		if err := leader.Create(ctx, name, CreateOptions{}); err == nil {
			t.Errorf("%q was created", name)
		}
	}
	db := open(t, leader, "a.db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(randomblob(100000))", "DELETE FROM t", "PRAGMA incremental_vacuum")
	if got := value(t, db, "PRAGMA page_size"); got != "1024" {
		t.Error(got)
	}
	c.judge()
	must(t, leader.Delete(ctx, "a.db"))
	if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES(1)"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a deleted database was written: %v", err)
	}
	if err := leader.Delete(ctx, "a.db"); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	for _, n := range c.all() {
		until(t, "the list is that of the leader", func() bool { return fmt.Sprint(n.List()) == "[dir/b.db]" })
		until(t, "the file is gone", func() bool {
			_, err := os.Stat(filepath.Join(c.dir, n.ID(), "data", "a.db"))
			return errors.Is(err, fs.ErrNotExist)
		})
	}
	must(t, leader.Create(ctx, "a.db", CreateOptions{}))
	execAll(t, open(t, leader, "a.db"), "CREATE TABLE u(x)")
	c.judge()
}

// TestFailover closes the leader repeatedly. Acknowledged commits stay.
// Promise: replica/commit-returned-majority
func TestFailover(t *testing.T) {
	c := newCluster(t, 3, Options{})
	total := 0
	for round := range 3 {
		leader := c.leader()
		db := open(t, leader, "db")
		execAll(t, db, "CREATE TABLE IF NOT EXISTS t(x)")
		for range 20 {
			execAll(t, db, "INSERT INTO t VALUES(randomblob(500))")
			total++
		}
		id := leader.ID()
		c.stop(id)
		must(t, c.leader().Do(t.Context(), "db", func(tx *sql.Tx) error {
			_, err := tx.Exec("INSERT INTO t VALUES(?)", round)
			return err
		}))
		total++
		c.start(id)
		until(t, "the node is back", func() bool { return c.node(id).progress.recovered.Load() })
	}
	if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != fmt.Sprint(total) {
		t.Errorf("%s rows, want %d", got, total)
	}
	c.judge()
}

// TestMajorityGone: without a majority, writes fail in bounded time, and reads whose bound
// allows it continue. A commit without an answer is later there as a whole or not at all.
// Promise: replica/without-majority-writes
func TestMajorityGone(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 3 * time.Second})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	for _, n := range c.followers() {
		c.stop(n.ID())
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := db.ExecContext(ctx, "INSERT INTO t VALUES(2)")
	if !errors.Is(err, ErrUncertain) {
		t.Errorf("a write without a majority: %v", err)
	}
	_, err = db.ExecContext(ctx, "INSERT INTO t VALUES(3)")
	if _, ok := errors.AsType[*NotLeaderError](err); !ok {
		t.Errorf("a write without a leader: %v", err)
	}
	err = db.QueryRowContext(ctx, "SELECT 1 FROM t").Scan(new(int))
	if _, ok := errors.AsType[*NotLeaderError](err); !ok {
		t.Errorf("a read without a leader: %v", err)
	}
	if got := value(t, open(t, leader, "db", Stale(-1)), "SELECT count(*) FROM t"); got != "1" {
		t.Errorf("%s rows, want 1: what is not committed was seen", got)
	}
	if err := open(t, leader, "db", Stale(time.Second)).QueryRow("SELECT 1 FROM t").Scan(new(int)); !errors.Is(err, ErrStale) {
		t.Error(err)
	}
	for id := range c.addrs {
		if c.node(id) == nil {
			c.start(id)
		}
	}
	got := value(t, open(t, c.leader(), "db"), "SELECT group_concat(x) FROM t")
	if got != "1" && got != "1,2" {
		t.Errorf("rows %s", got)
	}
	c.judge()
}

// TestLongReaders: readers that stay open on followers see the old state while the leader
// changes the schema, shrinks the file by VACUUM and checkpoints. New readers see the new
// state.
// Promise: replica/reader-stays-follower
func TestLongReaders(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)", "CREATE TABLE gone(x)",
		"WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<500) INSERT INTO t SELECT i, randomblob(2000) FROM s")
	caughtUp(t, leader, "db", c.followers()...)
	const old = "SELECT count(*)||','||sum(length(x))||','||(SELECT count(*) FROM gone) FROM t"
	want := value(t, db, old)
	for round, change := range [][]string{
		{"ALTER TABLE t ADD COLUMN y DEFAULT 5", "CREATE INDEX i ON t(x)"},
		{"DELETE FROM t WHERE id>50", "VACUUM"},
		{"DROP TABLE gone", "PRAGMA wal_checkpoint(TRUNCATE)", "ALTER TABLE t RENAME COLUMN x TO z", "VACUUM"},
	} {
		var readers []*sql.Tx
		for _, n := range c.followers() {
			tx, err := open(t, n, "db", Stale(-1)).BeginTx(t.Context(), nil)
			must(t, err)
			readers = append(readers, tx)
			var got string
			must(t, tx.QueryRow(old).Scan(&got))
			if got != want {
				t.Errorf("round %d: a reader sees %s, want %s", round, got, want)
			}
		}
		execAll(t, db, change...)
		caughtUp(t, leader, "db", c.followers()...)
		for i, tx := range readers {
			var got string
			if err := tx.QueryRow(old).Scan(&got); err != nil || got != want {
				t.Errorf("round %d: reader %d that stayed sees %q instead of %s: %v", round, i, got, want, err)
			}
			must(t, tx.Rollback())
		}
		const schema = "SELECT group_concat(sql)||(SELECT count(*) FROM t) FROM sqlite_schema"
		now := value(t, db, schema)
		for _, n := range c.followers() {
			read := open(t, n, "db", Stale(-1))
			if got := value(t, read, schema); got != now {
				t.Errorf("round %d: %s has %s, the leader %s", round, n.ID(), got, now)
			}
			if got := value(t, read, "PRAGMA integrity_check"); got != "ok" {
				t.Errorf("round %d: %s: %s", round, n.ID(), got)
			}
		}
		if round < 2 {
			want = value(t, db, old)
		}
	}
	c.judge()
}

// TestTrace checks that the execution trace has the regions, and a goroutine profile the
// labels, exactly when the option is set.
func TestTrace(t *testing.T) {
	c := newCluster(t, 1, Options{})
	for _, on := range []bool{false, true} {
		c.base.Trace = on
		c.stop("a")
		c.start("a")
		leader := c.leader()
		var profile, events bytes.Buffer
		must(t, pprof.Lookup("goroutine").WriteTo(&profile, 1))
		if err := trace.Start(&events); err != nil {
			t.Skipf("needs an execution trace, but one is already running: %v", err)
		}
		func() {
			defer trace.Stop()
			execAll(t, open(t, leader, "db"), "CREATE TABLE IF NOT EXISTS t(x)", "INSERT INTO t VALUES(1)")
			must(t, leader.raft.Snapshot().Error())
		}()
		if got := strings.Contains(profile.String(), `"node":"a", "ringside":"replica"`); got != on {
			t.Errorf("Trace %v: labels in the profile: %v", on, got)
		}
		for _, region := range []string{"replica.commit", "replica.sync", "replica.apply", "replica.snapshot"} {
			// Names of functions begin alike; the length precedes a string.
			if got := bytes.Contains(events.Bytes(), append([]byte{byte(len(region))}, region...)); got != on {
				t.Errorf("Trace %v: %s in the trace: %v", on, region, got)
			}
		}
	}
}

// TestSeveralStatements: outside a transaction an Exec of several statements commits each of them. With
// arguments, and in a query, several statements are refused before the first one.
// Promise: replica/outside-transaction-exec
func TestSeveralStatements(t *testing.T) {
	c := newCluster(t, 3, Options{Forward: true})
	for _, n := range []*Node{c.leader(), c.followers()[0]} {
		t.Run(n.ID(), func(t *testing.T) {
			ctx, name := t.Context(), n.ID()
			db := open(t, n, name)
			_, err := db.ExecContext(ctx, "CREATE TABLE t(x UNIQUE); INSERT INTO t VALUES(1); INSERT INTO t VALUES(1); INSERT INTO t VALUES(2)")
			if !errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) || errors.Is(err, ErrUncertain) {
				t.Error(err)
			}
			if _, err := db.ExecContext(ctx, "INSERT INTO t VALUES(?); INSERT INTO t VALUES(4)", 3); err == nil || !strings.Contains(err.Error(), "multiple statements") {
				t.Error(err)
			}
			var x int
			if err := db.QueryRowContext(ctx, "INSERT INTO t VALUES(5) RETURNING x; INSERT INTO t VALUES(6)").Scan(&x); err == nil || !strings.Contains(err.Error(), "multiple statements") {
				t.Error(err)
			}
			if err := atomically(ctx, db, "INSERT INTO t VALUES(7); INSERT INTO t VALUES(7)"); !errors.Is(err, sqlite3.CONSTRAINT_UNIQUE) {
				t.Error(err)
			}
			if got := value(t, db, "SELECT group_concat(x) FROM t"); got != "1" {
				t.Errorf("the rows %s were committed, not only 1", got)
			}
		})
	}
}

// TestReturningInterrupted: a query that writes commits before it returns its rows. A context that ends
// later does not change that, and the error of the commit is the query's, also if the context ends
// meanwhile. Otherwise database/sql would drop it when it closes the rows because the context has ended.
// Promise: replica/outside-transaction-exec
func TestReturningInterrupted(t *testing.T) {
	var hold atomic.Pointer[func()]
	var failing atomic.Bool
	c := newCluster(t, 1, Options{disk: disk{
		written: func(appendlog.SegmentInfo) error {
			if f := hold.Load(); f != nil {
				(*f)()
			}
			return nil
		},
		around: func(path string, sync func() error) error {
			if failing.Load() && strings.HasSuffix(path, "db-wal") {
				return syscall.EIO
			}
			return sync()
		},
	}})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x, y)")
	count := func(x int) string { return value(t, db, fmt.Sprintf("SELECT count(*) FROM t WHERE x=%d", x)) }
	const insert = "INSERT INTO t VALUES(?1, 'a'), (?1, x'62') RETURNING x, y"

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows, err := db.QueryContext(ctx, insert, 1)
	must(t, err)
	if got := count(1); got != "2" {
		t.Error("not committed when the rows are there")
	}
	if names, err := rows.Columns(); err != nil || strings.Join(names, " ") != "x y" {
		t.Errorf("columns %q, %v", names, err)
	}
	var got []string
	for rows.Next() {
		var x int
		var y any
		must(t, rows.Scan(&x, &y))
		got = append(got, fmt.Sprintf("%d %T %s", x, y, y))
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil || strings.Join(got, ", ") != "1 string a, 1 []uint8 b" {
		t.Errorf("%q, %v", got, err)
	}

	proposed := make(chan struct{})
	var once sync.Once
	f := func() { once.Do(func() { close(proposed); <-ctx.Done() }) }
	hold.Store(&f)
	go func() {
		<-proposed
		cancel()
	}()
	// Once the query has returned rows, the commit is certain; database/sql then ends them with the context.
	if rows, err := db.QueryContext(ctx, insert, 2); err == nil {
		rows.Close()
	} else if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUncertain) {
		t.Errorf("a context that ended during the commit: %v", err)
	}
	hold.Store(nil)
	until(t, "the transaction, whose outcome was unknown, is committed", func() bool { return count(2) == "2" })

	execAll(t, db, "PRAGMA wal_checkpoint(RESTART)")
	failing.Store(true) // the sync of the WAL's new header
	rows, err = db.QueryContext(t.Context(), insert, 3)
	failing.Store(false)
	if err == nil {
		rows.Close()
	}
	if !errors.Is(err, syscall.EIO) || errors.Is(err, ErrUncertain) {
		t.Errorf("the query has not the error of its commit: %v", err)
	}
	if got := count(3); got != "0" {
		t.Error("committed although the WAL failed")
	}
}

// TestKilledWhileNew opens a node that was killed between the two steps of raft.BootstrapCluster.
func TestKilledWhileNew(t *testing.T) {
	dir := t.TempDir()
	store, err := raftlog.Open(filepath.Join(dir, "raft"), raftlog.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(store.SetUint64([]byte("CurrentTerm"), 1), store.Close()); err != nil {
		t.Fatal(err)
	}
	addr := freeAddress(t)
	n, err := Open(Options{ID: "a", Dir: dir, Listen: addr, Peers: map[string]string{"a": addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if _, _, err := n.WaitLeader(ctx); err != nil {
		t.Fatal(err)
	}
}
