// SPDX-License-Identifier: MIT

package replica

import (
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// deferring starts nodes that defer transactions until they are needed.
func deferring(t *testing.T, count int) *cluster {
	return newCluster(t, count, Options{flushAfter: time.Hour})
}

// deferredOn waits until nodes have a database's transactions, and fails if they have written them.
func deferredOn(t *testing.T, leader *Node, nodes ...*Node) {
	t.Helper()
	caughtUp(t, leader, "db", nodes...)
	for _, n := range nodes {
		if d, err := n.catalog.named("db"); err != nil || !d.hasDeferred.Load() {
			t.Fatalf("%s has nothing deferred: %v", n.ID(), err)
		}
	}
}

// TestDeferred: a follower writes a page once that several transactions change, and a reader sees all of
// them.
func TestDeferred(t *testing.T) {
	c := deferring(t, 3)
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	c.judge()
	n := c.followers()[0]
	d, err := n.catalog.named("db")
	must(t, err)
	frames := func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		h, _, err := d.pages.header()
		must(t, err)
		return int(h.frames)
	}
	read := open(t, n, "db", Stale(-1))
	for rows := 20; rows <= 40; rows += 20 {
		before := frames()
		for range 20 {
			execAll(t, db, "INSERT INTO t VALUES(1)")
		}
		deferredOn(t, leader, n)
		if got := value(t, read, "SELECT count(*) FROM t"); got != fmt.Sprint(rows) {
			t.Errorf("a reader sees %s rows of %d", got, rows)
		}
		if d.hasDeferred.Load() || frames()-before != 1 {
			t.Errorf("20 transactions that change one page have %d frames", frames()-before)
		}
	}
	execAll(t, db, "INSERT INTO t VALUES(1)")
	deferredOn(t, leader, n)
	kept, err := read.Conn(t.Context())
	must(t, err)
	defer kept.Close()
	var rows int
	_, err = kept.ExecContext(t.Context(), "CREATE TEMP TABLE c AS SELECT count(*) AS n FROM t")
	must(t, err)
	must(t, kept.QueryRowContext(t.Context(), "SELECT n FROM c").Scan(&rows))
	if rows != 41 {
		t.Errorf("a statement of Exec sees %d rows of 41", rows)
	}
	c.judge()
	for range 200 {
		execAll(t, db, "INSERT INTO t VALUES(1)")
	}
	caughtUp(t, leader, "db", n)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deferredPages > d.recentLimit() {
		t.Errorf("%d changes of pages are deferred", d.deferredPages)
	}
}

// TestDeferredAtTheEnd: a new leader, a snapshot, and the files of a stopped node have the transactions
// that were deferred.
func TestDeferredAtTheEnd(t *testing.T) {
	c := deferring(t, 3)
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	followers := c.followers()
	deferredOn(t, leader, followers...)
	must(t, followers[0].raft.Snapshot().Error())
	if d, err := followers[0].catalog.named("db"); err != nil || d.hasDeferred.Load() {
		t.Errorf("the snapshot lacks a transaction: %v", err)
	}
	execAll(t, db, "INSERT INTO t VALUES(2)")
	deferredOn(t, leader, followers...)
	c.stop(followers[0].ID())
	file, err := sql.Open("sqlite3", "file:"+filepath.Join(c.dir, followers[0].ID(), "data", "db")+"?vfs=os")
	must(t, err)
	if got := value(t, file, "SELECT count(*) FROM t"); got != "2" {
		t.Errorf("the file of a stopped node has %s rows", got)
	}
	must(t, file.Close())
	until(t, "another leader", func() bool {
		_ = leader.Transfer(t.Context(), followers[1].ID())
		return c.leader() != leader
	})
	next := c.leader()
	if d, err := next.catalog.named("db"); err != nil || d.hasDeferred.Load() {
		t.Errorf("the leader lacks a transaction: %v", err)
	}
	execAll(t, open(t, next, "db"), "UPDATE t SET x=x+1")
	if got := value(t, open(t, next, "db"), "SELECT sum(x) FROM t"); got != "5" {
		t.Errorf("the new leader has %s", got)
	}
	c.start(followers[0].ID())
	c.judge()
}

// TestWriterBesideDeferred: a transaction that began before this node was deposed is refused if it has
// read pages from before those of another leader.
func TestWriterBesideDeferred(t *testing.T) {
	c := deferring(t, 1)
	n := c.leader()
	db := open(t, n, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	d, err := n.catalog.named("db")
	must(t, err)
	tx, err := db.BeginTx(t.Context(), nil)
	must(t, err)
	_, err = tx.Exec("INSERT INTO t VALUES(1)")
	must(t, err)
	d.mu.Lock()
	d.deferred = append(d.deferred, &txn{})
	d.mu.Unlock()
	err = tx.Commit()
	d.mu.Lock()
	d.deferred = nil
	d.mu.Unlock()
	if !errors.Is(err, ErrConflict) {
		t.Errorf("%v", err)
	}
	_ = tx.Rollback()
	execAll(t, db, "INSERT INTO t VALUES(2)")
	c.judge()
}

// TestDeferredReaders: readers on followers see whole transactions, in order, and all of those that Wait
// has waited for, or that are within the bound of Stale.
func TestDeferredReaders(t *testing.T) {
	for _, after := range []time.Duration{time.Millisecond, time.Hour} {
		t.Run(after.String(), func(t *testing.T) {
			c := newCluster(t, 3, Options{flushAfter: after})
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, n, pad)",
				"WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<40) INSERT INTO t SELECT i, 0, randomblob(1000) FROM s")
			caughtUp(t, leader, "db", c.followers()...)
			var over sync.WaitGroup
			end := make(chan struct{})
			for i, n := range c.followers() {
				bound := time.Duration(-i) // the second one waits for the position
				read := open(t, n, "db", Stale(bound))
				over.Go(func() {
					last := 0
					for {
						select {
						case <-end:
							return
						default:
						}
						pos, err := leader.Position("db")
						if err == nil && bound < 0 {
							err = n.Wait(t.Context(), pos)
						}
						var low, high int
						if err == nil {
							err = read.QueryRowContext(t.Context(), "SELECT min(n), max(n) FROM t").Scan(&low, &high)
						}
						// The table, its rows, and an update for each number.
						if err != nil || low != high || low < last || low < int(pos.Seq)-2 {
							t.Errorf("a reader sees the numbers %d to %d after %d, at transaction %d: %v", low, high, last, pos.Seq, err)
							return
						}
						last = low
					}
				})
			}
			for range size(40, 150) {
				if _, err := db.ExecContext(t.Context(), "UPDATE t SET n=n+1"); err != nil {
					t.Error(err)
					break
				}
			}
			close(end)
			over.Wait()
			c.judge()
		})
	}
}

// TestMerge writes transactions of SQLite in random groups. After each group the pages have the checksum of the
// last transaction.
func TestMerge(t *testing.T) {
	c := deferring(t, 1)
	n := c.leader()
	o := CreateOptions{PageSize: 1024, AutoVacuum: true}
	must(t, n.Create(t.Context(), "from", o))
	db := open(t, n, "from")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)", "CREATE INDEX i ON t(x)")
	for i := range 150 {
		execAll(t, db, fmt.Sprintf("INSERT INTO t SELECT NULL, randomblob(1+abs(random())%%%d) FROM (VALUES(1),(2),(3))", 1<<(i%12)))
		switch i % 10 {
		case 3:
			execAll(t, db, "DELETE FROM t WHERE random()%3=0")
		case 5:
			execAll(t, db, "UPDATE t SET x=zeroblob(10) WHERE random()%9=0")
		case 7:
			execAll(t, db, "PRAGMA incremental_vacuum(5)")
		case 8:
			if i%50 == 8 {
				execAll(t, db, "VACUUM")
			}
		}
	}
	from, err := n.catalog.named("from")
	must(t, err)
	from.mu.Lock()
	list, err := n.store.transactions(from, n.raft.LastIndex(), math.MaxUint64)
	from.mu.Unlock()
	must(t, err)
	for seed := range uint64(8) {
		r := rand.New(rand.NewPCG(seed, 3))
		name := fmt.Sprint("to", seed)
		must(t, n.Create(t.Context(), name, o))
		to, err := n.catalog.named(name)
		must(t, err)
		n.role.prompt.Store(false)
		to.mu.Lock()
		groups, largest := 0, 0
		for _, change := range list {
			if change.before != to.pos.Sum {
				t.Fatalf("seed %d: transaction %d does not follow", seed, change.seq)
			}
			to.receive(change)
			to.pos.Seq, to.pos.Sum = change.seq+1, change.after
			if largest = max(largest, len(to.deferred)); r.IntN(8) > 0 {
				continue
			}
			if r.IntN(4) == 0 {
				to.recent = nil
			}
			groups++
			must(t, to.flush())
			m, err := to.pages.image()
			must(t, err)
			_, sum, err := m.sums()
			must(t, errors.Join(err, m.done()))
			if sum != to.pos.Sum {
				t.Fatalf("seed %d: the pages have the checksum %016x after transaction %d, instead of %016x", seed, sum, change.seq+1, to.pos.Sum)
			}
		}
		to.mu.Unlock()
		if got := value(t, open(t, n, name, Stale(-1)), "PRAGMA integrity_check"); got != "ok" || to.broken != nil {
			t.Errorf("seed %d: %s, %v", seed, got, to.broken)
		}
		t.Logf("seed %d: %d transactions in %d groups, %d in the largest", seed, len(list), groups, largest)
	}
}

// TestEntriesInFlight: while results are awaited, later operations share an entry.
func TestEntriesInFlight(t *testing.T) {
	var logs followerLogs
	gate := make(chan struct{})
	c := newCluster(t, 3, Options{disk: disk{written: logs.written}})
	leader := c.leader()
	c.judge()
	logs.set(leader, func() error {
		<-gate
		return nil
	})
	before := leader.metrics.Entries.Load()
	const count = 3 * opsInFlight
	var all []*proposal
	for i := range count {
		p := createOp(t, leader, fmt.Sprint("db", i))
		leader.proposer.enqueue(t.Context(), p)
		all = append(all, p)
		if i < opsInFlight {
			until(t, "an entry is proposed", func() bool { return leader.metrics.Entries.Load() > before+uint64(i) })
		}
	}
	until(t, "the others are proposed", func() bool { return leader.metrics.Entries.Load() > before+opsInFlight })
	close(gate)
	for _, p := range all {
		must(t, leader.proposer.await(t.Context(), nil, p, func() {}))
	}
	if got := leader.metrics.Entries.Load() - before; got > 2*opsInFlight { // one by one the others would have 2*opsInFlight more
		t.Errorf("%d operations have %d entries", count, got)
	}
	c.judge()
}
