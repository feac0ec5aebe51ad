// SPDX-License-Identifier: MIT

package replica

import (
	"database/sql"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3"
)

// transfers calls send for each snapshot that is sent to a member.
type transfers struct {
	network
	send func(id raft.ServerID, send func() error) error
}

func (n transfers) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return n.send(id, func() error { return n.network.InstallSnapshot(id, target, args, resp, data) })
}

// TestTransferHoldsTheLog: while a member fetches files, more is committed than the log keeps, and snapshots are
// taken. The member then gets the entries, and does not fetch the files again.
//
// Promise: replica/transfer-holds-log
func TestTransferHoldsTheLog(t *testing.T) {
	var count atomic.Int64          // snapshots that are sent to the member
	var slow atomic.Pointer[string] // its directory
	var fetches atomic.Bool         // it has begun
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	send := func(id raft.ServerID, send func() error) error {
		if dir := slow.Load(); dir == nil || filepath.Base(*dir) != string(id) {
			return send()
		}
		count.Add(1)
		err := send()
		t.Log("a snapshot was sent to the member:", err)
		if err != nil && !fetches.Load() {
			count.Add(-1) // it did not run yet
		}
		return err
	}
	c := newCluster(t, 3, Options{SnapshotEntries: 20, around: func(n network) network { return transfers{n, send} },
		disk: disk{around: func(path string, sync func() error) error {
			if dir := slow.Load(); dir != nil && strings.HasPrefix(path, *dir+"/") && strings.HasSuffix(path, "db.new") {
				fetches.Store(true)
				<-gate
			}
			return sync()
		}}})
	defer release()
	leader := c.leader()
	away := c.followers()[0].ID()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	c.judge()
	c.stop(away)
	commits := func() {
		for range 60 {
			execAll(t, db, "INSERT INTO t VALUES(randomblob(2000))")
		}
		if err := leader.raft.Snapshot().Error(); err != nil {
			t.Fatal(err)
		}
	}
	commits()
	dir := filepath.Join(c.dir, away)
	slow.Store(&dir)
	n := c.start(away)
	until(t, "the member fetches", func() bool { return fetches.Load() && leader.store.holds.first(leader.store.Store) < 1<<40 })
	for range 3 {
		commits()
	}
	release()
	caughtUp(t, leader, "db", n)
	if got := count.Load(); got != 1 {
		t.Errorf("%d snapshots were sent", got)
	}
	// It has all: the log is cut again.
	until(t, "the log is cut", func() bool {
		commits()
		first, err := leader.store.FirstIndex()
		return err == nil && leader.raft.LastIndex()-first < 200
	})
	c.judge()
}

// TestSpilledBacklog: more is committed while a file is fetched than is kept in memory. The file is completed from
// raft's log, and is not fetched again.
//
// Promise: replica/transfer-holds-log
func TestSpilledBacklog(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader, n := c.leader(), c.followers()[0]
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	c.judge()
	d, err := n.catalog.named("db")
	must(t, err)
	d.mu.Lock()
	d.broken, d.fetching = &BrokenError{"db", os.ErrInvalid}, true
	seq := d.pos.Seq
	d.mu.Unlock()
	tmp := d.path + ".new"
	pos, err := leader.copyTo(t.Context(), mustNamed(t, leader, "db"), tmp)
	must(t, err)
	if pos.Seq < seq {
		t.Fatal("the copy is old")
	}
	for range 10 {
		execAll(t, db, "INSERT INTO t VALUES(randomblob(20000))")
	}
	caughtUp(t, leader, "db", n)
	d.mu.Lock()
	d.backlog, d.backBytes, d.spilled = nil, 0, true
	d.mu.Unlock()
	must(t, d.install(tmp, pos))
	if got := value(t, open(t, n, "db", Stale(0)), "SELECT count(*) FROM t"); got != "10" {
		t.Errorf("%s rows", got)
	}
	c.judge()
}

func mustNamed(t *testing.T, n *Node, name string) *database {
	t.Helper()
	d, err := n.catalog.named(name)
	must(t, err)
	return d
}

// TestVerifyBesideWriters: eight writers do not keep Verify from its end, on the leader and on a follower, and a page
// that differs is found.
//
// Promise: replica/verify-beside-writers
func TestVerifyBesideWriters(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader, follower := c.leader(), c.followers()[0]
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(randomblob(100000))")
	var stops []func() (int, error)
	for range 4 {
		stops = append(stops, writer(t.Context(), db, "INSERT INTO t VALUES(randomblob(200))"))
	}
	ctx, cancel := contextFor(t)
	defer cancel()
	for i := range 5 {
		for _, n := range []*Node{leader, follower} {
			if err := n.Verify(ctx); err != nil {
				t.Errorf("%d on %s: %v", i, n.ID(), err)
			}
		}
	}
	all := 0
	for _, stop := range stops {
		written, err := stop()
		if err != nil && !errors.Is(err, sqlite3.BUSY) { // one may wait for a minute on a busy machine
			t.Errorf("%d, %v", written, err)
		}
		all += written
	}
	if all == 0 {
		t.Error("nothing was written")
	}
	c.judge()
}

// TestVerifyAwaitsTheWriter: a checksum is of the state at an entry. The file is not in that state while the writer
// has not put the transaction of the entry into it.
//
// Promise: replica/verify-beside-writers
func TestVerifyAwaitsTheWriter(t *testing.T) {
	c := newCluster(t, 1, Options{})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	db := mustNamed(t, c.leader(), "db")
	f, err := openPages(db.keeperURI(), db.path, &db.node.opts.disk)
	must(t, err)
	defer f.close()
	fixed := func() bool {
		m, _, err := db.state(f)
		must(t, err)
		if m == nil {
			return false
		}
		must(t, m.done())
		return true
	}
	if !fixed() {
		t.Error("no state, although the writer is done")
	}
	db.owed.Store(true)
	if fixed() {
		t.Error("a state, although a transaction is owed")
	}
	db.owed.Store(false)
	db.commits.Add(1)
	if fixed() {
		t.Error("a state, although the file is a transaction behind")
	}
	db.commits.Add(^uint32(0))
	if !fixed() {
		t.Error("no state in the end")
	}
}

// TestOrphans: files of databases that were deleted while a node was away, and whose deletion was cut from the log,
// are removed when the node is back. Other files stay.
//
// Promise: replica/no-orphans
func TestOrphans(t *testing.T) {
	c := newCluster(t, 3, Options{SnapshotEntries: 10})
	leader := c.leader()
	away := c.followers()[0]
	for i := range 4 {
		execAll(t, open(t, leader, fmt.Sprint("tenants/", i)), "CREATE TABLE t(x)", "INSERT INTO t VALUES('secret')")
	}
	c.judge()
	c.stop(away.ID())
	foreign := filepath.Join(away.catalog.data, "tenants", "note.txt")
	must(t, os.WriteFile(foreign, []byte("not a database"), 0o600))
	for i := range 3 {
		must(t, leader.Delete(t.Context(), fmt.Sprint("tenants/", i)))
	}
	db := open(t, leader, "tenants/3")
	for range 40 {
		execAll(t, db, "INSERT INTO t VALUES(1)")
	}
	must(t, leader.raft.Snapshot().Error())
	n := c.start(away.ID())
	caughtUp(t, leader, "tenants/3", n)
	until(t, "the files are gone", func() bool {
		files, err := filepath.Glob(filepath.Join(n.catalog.data, "tenants", "[012]*"))
		return err == nil && len(files) == 0
	})
	if _, err := os.Stat(foreign); err != nil {
		t.Error(err)
	}
	c.judge()
}

// TestPartsOfKilledRestore: parts of a file whose restore was never completed are removed on all nodes.
//
// Promise: replica/no-orphans
func TestPartsOfKilledRestore(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 2 * time.Second})
	leader := c.leader()
	must(t, leader.proposer.commit(t.Context(), opPart, append(make([]byte, 24), "a part"...))) // of a process that is gone
	for _, n := range c.all() {
		until(t, "the part is there", func() bool {
			parts, _ := filepath.Glob(filepath.Join(n.opts.Dir, "staging", "*"))
			return len(parts) == 1
		})
	}
	until(t, "another leader", func() bool { return leader.Transfer(t.Context(), "") == nil })
	for _, n := range c.all() {
		until(t, "the part is removed", func() bool {
			parts, _ := filepath.Glob(filepath.Join(n.opts.Dir, "staging", "*"))
			return len(parts) == 0
		})
	}
	must(t, c.leader().Do(t.Context(), "db", func(*sql.Tx) error { return nil }))
}
