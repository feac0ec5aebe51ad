// SPDX-License-Identifier: MIT

package replica

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
	"github.com/ncruces/go-sqlite3"
	sqlite "github.com/ncruces/go-sqlite3/driver"

	"github.com/ringside-io/ringside/appendlog"
)

// TestForeignChange lets another program change, truncate or delete a file of a stopped
// node. The node notices when it uses the database, and fetches it.
// Promise: replica/file-another-program
func TestForeignChange(t *testing.T) {
	for name, harm := range map[string]func(path string) error{
		"deleted": os.Remove,
		"cut":     func(path string) error { return os.Truncate(path, 4096) },
		"changed": func(path string) error {
			f, err := os.OpenFile(path, os.O_RDWR, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt([]byte("x"), 2*4096+1000)
			return errors.Join(err, f.Close())
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The removal of the old WAL must be durable before the fetched file gets its name.
			var ordered sync.Map
			around := func(path string, sync func() error) error {
				_, fetched := os.Stat(filepath.Join(path, "db.new"))
				_, wal := os.Stat(filepath.Join(path, "db-wal"))
				err := sync()
				if fetched == nil && errors.Is(wal, os.ErrNotExist) && err == nil {
					ordered.Store(path, true)
				}
				return err
			}
			c := newCluster(t, 3, Options{disk: disk{around: around}})
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(randomblob(20000))")
			c.judge()
			victim := c.followers()[0].ID()
			must(t, c.node(victim).raft.Snapshot().Error())
			c.stop(victim)
			path := filepath.Join(c.dir, victim, "data", "db")
			if err := os.Remove(path + "-wal"); err != nil { // checkpointed or not, it is damage
				t.Log(err)
			}
			must(t, harm(path))
			n := c.start(victim)
			until(t, "the node is ready", func() bool { return n.progress.recovered.Load() })
			execAll(t, db, "INSERT INTO t VALUES(1)")
			until(t, "the file is whole again", func() bool {
				return n.metrics.Fetched.Load() > 0 && len(n.Status().Broken) == 0
			})
			if _, ok := ordered.Load(n.catalog.data); !ok {
				t.Error("after a power cut the fetched file could have the WAL of the old one")
			}
			c.judge()
		})
	}
}

// TestJoin adds a node to a cluster whose log was truncated, and replaces a lost disk,
// while the other nodes write.
// Promise: replica/node-joins-lost
func TestJoin(t *testing.T) {
	c := newCluster(t, 3, Options{SnapshotEntries: 20})
	leader := c.leader()
	ctx := t.Context()
	for i := range 5 {
		db := open(t, leader, fmt.Sprintf("db%d", i))
		execAll(t, db, "CREATE TABLE t(x)")
		for range 10 {
			execAll(t, db, "INSERT INTO t VALUES(randomblob(3000))")
		}
	}
	for _, n := range c.all() {
		must(t, n.raft.Snapshot().Error())
	}
	busy := open(t, leader, "db0")
	stop := writer(ctx, busy, "INSERT INTO t VALUES(randomblob(2000))")
	lost := c.followers()[0].ID()
	// A new node.
	d := c.join("d")
	until(t, "the new node has the databases", func() bool { return len(d.List()) == 5 && d.progress.recovered.Load() && len(d.Status().Broken) == 0 })
	// A lost disk.
	c.stop(lost)
	must(t, leader.RemoveMember(ctx, lost)) // it has lost commits for which its vote was counted
	must(t, os.RemoveAll(filepath.Join(c.dir, lost)))
	n := c.join(lost)
	until(t, "the node with a new disk has the databases", func() bool { return len(n.List()) == 5 && n.progress.recovered.Load() && len(n.Status().Broken) == 0 })
	written, err := stop()
	must(t, err)
	if written == 0 {
		t.Error("nothing was written meanwhile")
	}
	c.judge()
	for _, n := range []*Node{d, n} {
		if s := n.Stats(); s.Broken != 0 || s.Fetched == 0 {
			t.Errorf("%s has what the others cut from their logs, which is no damage: %+v", n.ID(), s)
		}
	}
	must(t, leader.RemoveMember(ctx, "d"))
	c.stop("d")
	execAll(t, busy, "INSERT INTO t VALUES(1)")
	c.judge()
}

// TestRefused: a node with a wrong name, or with the name of another node, is refused.
// Promise: replica/unauthorised-peers-refused
func TestRefused(t *testing.T) {
	c := newCluster(t, 1, Options{})
	a := c.leader()
	until(t, "the cluster has an identity", func() bool { return a.Status().Cluster != strings.Repeat("0", 16) })
	dial := func(h hello) error {
		n := &Node{opts: Options{ID: h.From, versions: spoken}, life: life{closing: t.Context()}}
		n.membership.cluster = h.Cluster
		w := &wire{node: n, address: h.Address}
		n.wire = w
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		conn, err := w.dial(ctx, peer{"a", a.Address()}, h.Kind)
		if err == nil {
			conn.Close()
		}
		return err
	}
	for what, h := range map[string]hello{
		"is not a member of the cluster":   {From: "x", Address: "127.0.0.1:1"},
		"has the same ID":                  {From: "a", Address: "127.0.0.1:1"},
		"the directory of another cluster": {From: "a", Address: a.Address(), Cluster: 99},
	} {
		h.Kind = kindRaft
		if err := dial(h); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
	o := c.options("a")
	o.ID, o.Peers = "z", nil
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), `belongs to node "a"`) {
		t.Errorf("a directory of another node: %v", err)
	}
	o = Options{ID: "q", Dir: t.TempDir(), Listen: "0.0.0.0:0"}
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "Options.PlainText") {
		t.Errorf("plain text beyond loopback: %v", err)
	}
}

// TestTooLarge: a transaction beyond the limit is refused with an error that names the
// option, and the database continues.
// Promise: replica/transaction-beyond-maxtransaction
func TestTooLarge(t *testing.T) {
	c := newCluster(t, 3, Options{MaxTransaction: 1 << 20})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x)")
	_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES(randomblob(3000000))")
	if e, ok := errors.AsType[*TooLargeError](err); !ok || e.Limit != 1<<20 || !strings.Contains(err.Error(), "Options.MaxTransaction") {
		t.Errorf("%v", err)
	}
	// More than SQLite's cache, less than the limit: frames are read back before the
	// commit.
	execAll(t, db, "PRAGMA cache_size=10", "INSERT INTO t SELECT randomblob(3000) FROM (WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<200) SELECT i FROM s)",
		"UPDATE t SET x=zeroblob(length(x))")
	if got := value(t, db, "SELECT sum(length(x)) FROM t"); got != "600000" {
		t.Error(got)
	}
	c.judge()
}

// TestGiant: a transaction of 1 GiB is refused without the memory for it.
// Promise: replica/transaction-beyond-maxtransaction
func TestGiant(t *testing.T) {
	c := newCluster(t, 1, Options{})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	_, err := db.ExecContext(t.Context(), "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<1024) INSERT INTO t SELECT zeroblob(1<<20) FROM s")
	if _, ok := errors.AsType[*TooLargeError](err); !ok || !strings.Contains(err.Error(), "Options.MaxTransaction") {
		t.Errorf("%v", err)
	}
	o := c.options("a")
	o.MaxTransaction = 1 << 30
	if _, err := Open(o); err == nil || !strings.Contains(err.Error(), "Options.MaxTransaction") {
		t.Errorf("a limit of 1 GiB: %v", err)
	}
	execAll(t, db, "INSERT INTO t VALUES(2)")
	if got := value(t, db, "SELECT count(*) FROM t"); got != "2" {
		t.Errorf("%s rows", got)
	}
	c.judge()
}

// TestPragmas: statements that would bypass the log are refused.
func TestPragmas(t *testing.T) {
	c := newCluster(t, 1, Options{})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x)")
	for _, q := range []string{"PRAGMA journal_mode=DELETE", "PRAGMA synchronous=OFF", "PRAGMA synchronous=NORMAL", "PRAGMA locking_mode=EXCLUSIVE"} {
		if _, err := db.Exec(q); err == nil {
			t.Errorf("%s was taken", q)
		}
	}
	if got := value(t, db, "PRAGMA synchronous") + value(t, db, "PRAGMA journal_mode"); got != "2wal" {
		t.Error(got)
	}
	execAll(t, db, "INSERT INTO t VALUES(1)")
	c.judge()
}

// TestPageFile writes transactions without SQLite, across the blocks of the WAL's index,
// and SQLite reads each of them.
// Promise: replica/reader-stays-follower
func TestPageFile(t *testing.T) {
	c := newCluster(t, 2, Options{})
	leader := c.leader()
	must(t, leader.Create(t.Context(), "db", CreateOptions{PageSize: 512})) // a row fills a page
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, x)")
	follower := c.followers()[0]
	caughtUp(t, leader, "db", follower)
	hold := open(t, follower, "db", Stale(-1))
	tx, err := hold.BeginTx(t.Context(), nil)
	must(t, err)
	var n int
	must(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n))
	// An open reader prevents a restart of the WAL: it grows beyond two blocks.
	for i := range 4 {
		execAll(t, db, fmt.Sprintf("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<2500) INSERT INTO t SELECT i+%d, randomblob(450) FROM s", i*2500))
		caughtUp(t, leader, "db", follower)
		read := open(t, follower, "db", Stale(-1))
		if got := value(t, read, "SELECT count(*) FROM t"); got != fmt.Sprint((i+1)*2500) {
			t.Errorf("%s rows", got)
		}
		if got := value(t, read, "PRAGMA integrity_check"); got != "ok" {
			t.Error(got)
		}
	}
	if err := tx.QueryRow("SELECT count(*) FROM t").Scan(&n); err != nil || n != 0 {
		t.Errorf("a reader that stayed sees %d rows, %v", n, err)
	}
	must(t, tx.Rollback())
	execAll(t, db, "DELETE FROM t", "VACUUM")
	c.judge()
}

// TestKeptWAL: a follower that has checkpointed a WAL overwrites its frames. The files are whole at
// each step, also if the process ends there and the WAL's index is lost.
// Promise: replica/files-follower-whole
func TestKeptWAL(t *testing.T) {
	c := newCluster(t, 2, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	follower := c.followers()[0]
	caughtUp(t, leader, "db", follower)
	d, err := follower.catalog.named("db")
	must(t, err)
	restarted := 0
	for rows := 1; restarted < size(2, 4); rows++ {
		execAll(t, db, "INSERT INTO t VALUES(randomblob(60000))")
		caughtUp(t, leader, "db", follower)
		d.mu.Lock()
		must(t, d.flush())
		h, _, err := d.pages.header()
		must(t, err)
		if restarted > 0 || rows > 1 && h.frames < 15 { // SQLite has restarted it
			info, err := d.pages.wal.Stat()
			must(t, err)
			if least := int64(checkpointAfter * (frameHeaderSize + 4096)); info.Size() < least {
				t.Errorf("the WAL with %d frames has %d bytes, less than %d", h.frames, info.Size(), least)
			}
			dir := t.TempDir()
			for _, suffix := range []string{"", "-wal"} {
				p, err := os.ReadFile(d.path + suffix)
				must(t, err)
				must(t, os.WriteFile(filepath.Join(dir, "db"+suffix), p, 0o600))
			}
			copied, err := sqlite.Open("file:" + filepath.Join(dir, "db") + "?vfs=os")
			must(t, err)
			if got := value(t, copied, "SELECT count(*) FROM t"); got != fmt.Sprint(rows) {
				t.Errorf("%s rows of %d, with %d frames", got, rows, h.frames)
			}
			if got := value(t, copied, "PRAGMA integrity_check"); got != "ok" {
				t.Error(got)
			}
			must(t, copied.Close())
			restarted++
		}
		d.mu.Unlock()
		if rows > 200 {
			t.Fatal("the WAL was not restarted")
		}
	}
	c.judge()
}

func TestPageSum(t *testing.T) {
	a, b := make([]byte, 4096), make([]byte, 4096)
	rand.Read(a)
	rand.Read(b)
	if pageSum(1, a)^pageSum(2, b) == pageSum(1, b)^pageSum(2, a) {
		t.Error("exchanged pages have the same sum")
	}
	if bytes.Equal(a, b) || pageSum(1, a) != pageSum(1, bytes.Clone(a)) {
		t.Error("the sum is not one of the content")
	}
}

// TestRedo: a file into which a committed transaction could not be written is repaired from
// raft's log, without another node's file.
// Promise: replica/file-commit-could
func TestRedo(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(randomblob(20000))")
	c.judge()
	followers := c.followers()
	for _, n := range followers {
		d, err := n.catalog.named("db")
		must(t, err)
		d.lacks.Store(true)
	}
	for range 20 {
		execAll(t, db, "INSERT INTO t VALUES(randomblob(3000))")
	}
	for _, n := range followers {
		until(t, "the file is whole", func() bool { return n.metrics.Redone.Load() > 0 && len(n.Status().Broken) == 0 })
	}
	c.judge()
	for _, n := range followers {
		if s := n.Stats(); s.Fetched != 0 || s.Broken == 0 || s.Unserved != 0 {
			t.Errorf("%+v", s)
		}
	}
	// A writer whose file lacks a commit is refused before it changes anything.
	d, err := leader.catalog.named("db")
	must(t, err)
	d.lacks.Store(true)
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES('refused')")
	if _, ok := errors.AsType[*BrokenError](err); !ok {
		t.Errorf("a write into a file that lacks a commit: %v", err)
	}
	d.lacks.Store(false)
	execAll(t, db, "INSERT INTO t VALUES('taken')")
	c.judge()
}

// TestErrorsOfTheLeadersDisk: if the leader cannot write or sync the header of a WAL, nothing was
// proposed. The error has the reason, and not only SQLite's code, after which the caller could
// not know whether the transaction is there.
// Promise: replica/error-commit-certain
func TestErrorsOfTheLeadersDisk(t *testing.T) {
	var failing atomic.Bool
	around := func(path string, sync func() error) error {
		if failing.Load() && strings.HasSuffix(path, "db-wal") {
			return syscall.EIO
		}
		return sync()
	}
	c := newCluster(t, 1, Options{disk: disk{around: around}})
	db := open(t, c.leader(), "db")
	must(t, db.PingContext(t.Context()))
	write := map[string]func(string) error{
		"a statement": func(s string) error {
			_, err := db.ExecContext(t.Context(), s)
			return err
		},
		"a transaction": func(s string) error { return atomically(t.Context(), db, s) },
		"a result": func(s string) error {
			var x any
			return db.QueryRowContext(t.Context(), s+" RETURNING x").Scan(&x)
		},
	}
	for name, f := range write {
		t.Run(name, func(t *testing.T) {
			for _, s := range []string{"CREATE TABLE IF NOT EXISTS t(x)", "PRAGMA wal_checkpoint(RESTART)"} {
				_, err := db.ExecContext(t.Context(), s)
				must(t, err)
			}
			failing.Store(true)
			err := f("INSERT INTO t VALUES('" + name + "')")
			failing.Store(false)
			if !errors.Is(err, syscall.EIO) || !errors.Is(err, sqlite3.IOERR) || errors.Is(err, ErrUncertain) || !strings.Contains(err.Error(), "not committed") {
				t.Errorf("%v", err)
			}
			var rows int
			must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM t WHERE x=?", name).Scan(&rows))
			if rows != 0 {
				t.Error("the refused row is there")
			}
			must(t, f("INSERT INTO t VALUES('"+name+"')"))
		})
	}
	c.judge()
}

// TestCommitIsNotInIndex: SQLite enters the frames of a transaction into the index of the WAL after
// it was committed. If that fails, the file lacks the transaction: the next writer must not build on
// its pages, and the caller gets ErrUncertain.
// Promise: replica/error-commit-certain
func TestCommitIsNotInIndex(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	db.SetMaxOpenConns(1)
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	shm, err := os.OpenFile(filepath.Join(leader.catalog.data, "db-shm"), os.O_RDWR, 0)
	must(t, err)
	defer shm.Close()
	before := make([]byte, 2*indexHeaderSize)
	_, err = shm.ReadAt(before, 0)
	must(t, err)
	execAll(t, db, "INSERT INTO t VALUES(2)")
	_, err = shm.WriteAt(before, 0)
	must(t, err)
	_, err = db.ExecContext(t.Context(), "INSERT INTO t VALUES(3)")
	if _, ok := errors.AsType[*BrokenError](err); !ok {
		t.Errorf("a write into a file that lacks a commit: %v", err)
	}
	until(t, "the file is whole", func() bool { return leader.metrics.Redone.Load() > 0 && len(leader.Status().Broken) == 0 })
	var rows string
	until(t, "the rows can be read", func() bool {
		return db.QueryRowContext(t.Context(), "SELECT group_concat(x) FROM t").Scan(&rows) == nil
	})
	if rows != "1,2" {
		t.Errorf("the file has the rows %s", rows)
	}
	c.judge()

	leader = c.leader()
	d, err := leader.catalog.named("db")
	must(t, err)
	k := &conn{c: &connector{n: leader}, db: d}
	k.committed.Store(true)
	if err := k.translate(sqlite3.IOERR_SHMSIZE); !errors.Is(err, ErrUncertain) || !errors.Is(err, sqlite3.IOERR) {
		t.Errorf("an error of SQLite after the commit: %v", err)
	}
	until(t, "the file is whole", func() bool { return !d.lacks.Load() && len(leader.Status().Broken) == 0 })
	c.judge()
}

// TestIndexHasRoom: before a transaction is proposed, the index of the WAL has room for its frames.
// Promise: replica/error-commit-certain
func TestIndexHasRoom(t *testing.T) {
	var path string
	var large atomic.Int64 // size of the index when raft's log had a large transaction
	var logged int64
	written := func(s appendlog.SegmentInfo) error {
		if s.Size > logged+16<<20 {
			info, err := os.Stat(path)
			must(t, err)
			large.Store(info.Size())
		}
		logged = s.Size
		return nil
	}
	c := newCluster(t, 1, Options{disk: disk{written: written}})
	path = filepath.Join(c.leader().catalog.data, "db-shm")
	db := open(t, c.leader(), "db")
	// Without cache_size SQLite would write frames, and enter them, before the commit.
	execAll(t, db, "CREATE TABLE t(x)", "PRAGMA cache_size=-100000", "INSERT INTO t VALUES(randomblob(20000000))")
	if large.Load() < 2*indexBlock {
		t.Errorf("the index had %d bytes", large.Load())
	}
	c.judge()

	shm, err := os.Create(filepath.Join(t.TempDir(), "shm"))
	must(t, err)
	defer shm.Close()
	must(t, shm.Truncate(indexBlock))
	f := &walFile{db: &database{pageSize: 4096}, shm: shm}
	for _, frames := range []int64{framesInFirst, framesInFirst + 1, framesInFirst + framesInBlock, framesInFirst + framesInBlock + 1} {
		must(t, f.makeRoom(walHeaderSize+frames*(frameHeaderSize+4096)))
		info, err := shm.Stat()
		must(t, err)
		if want := (1 + (frames-framesInFirst+framesInBlock-1)/framesInBlock) * indexBlock; info.Size() != want {
			t.Errorf("%d frames: the index has %d bytes instead of %d", frames, info.Size(), want)
		}
	}
}

// TestFetchFromNodeThatRecovers: a node that was restarted alone, and whose file is newer
// than its snapshot, gives the file to others. Otherwise two members that must fetch it
// would wait for this node, and this node for a majority.
// Promise: replica/members-must-fetch
func TestFetchFromNodeThatRecovers(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	must(t, leader.raft.Snapshot().Error())
	execAll(t, db, "INSERT INTO t VALUES(2)", "INSERT INTO t VALUES(3)")
	d, err := leader.catalog.named("db")
	must(t, err)
	d.mu.Lock()
	want := d.pos
	d.mu.Unlock()
	for _, n := range c.all() {
		c.stop(n.ID())
	}
	n := c.start(leader.ID())
	d, err = n.catalog.named("db")
	must(t, err)
	ctx, cancel := contextFor(t)
	defer cancel()
	f, m, pos, err := n.repairs.imageOf(ctx, d.id, want.Seq)
	must(t, err)
	_, sum, err := m.sums()
	must(t, errors.Join(err, m.done(), f.close()))
	if pos.Seq != want.Seq || pos.Sum != want.Sum || sum != want.Sum {
		t.Errorf("the position is %v with pages %016x, want %v", pos, sum, want)
	}
	if _, err := d.usable(); !errors.Is(err, errRecovering) {
		t.Errorf("connections: %v", err)
	}
}

// TestChanges encodes random changes of pages and applies them. Incomplete changes must
// harm nothing but the page.
// Promise: replica/log-carries-changes
func TestChanges(t *testing.T) {
	for seed := range uint64(2000) {
		r := mathrand.New(mathrand.NewPCG(seed, 2))
		size := 512 << r.IntN(8)
		old := make([]byte, size)
		rand.Read(old)
		page := bytes.Clone(old)
		for range r.IntN(12) {
			at := r.IntN(size)
			rand.Read(page[at:min(size, at+r.IntN(1<<r.IntN(12)))])
		}
		change := appendChange([]byte("before"), old, page)[len("before"):]
		if len(change) > size || len(change) == size && !bytes.Equal(change, page) {
			t.Fatalf("seed %d: the change of a page of %d bytes has %d", seed, size, len(change))
		}
		if len(change) == size {
			continue
		}
		if got := bytes.Clone(old); applyChange(got, change) != nil || !bytes.Equal(got, page) {
			t.Fatalf("seed %d: the change does not lead to the new content", seed)
		}
		for range 20 {
			broken := bytes.Clone(change[:r.IntN(len(change)+1)])
			if len(broken) > 0 {
				broken[r.IntN(len(broken))] ^= byte(1 + r.IntN(255))
			}
			_ = applyChange(bytes.Clone(old), broken)
		}
	}
}

// TestChangesOfUnknownPages: a follower that does not have a page in memory reads it from
// its file, from each block of the WAL's index.
// Promise: replica/log-carries-changes
func TestChangesOfUnknownPages(t *testing.T) {
	c := newCluster(t, 2, Options{})
	leader, follower := c.leader(), c.followers()[0]
	must(t, leader.Create(t.Context(), "db", CreateOptions{PageSize: 512})) // a row fills a page
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(id INTEGER PRIMARY KEY, n, x)")
	reach := func() { caughtUp(t, leader, "db", follower) }
	reach()
	tx, err := open(t, follower, "db", Stale(-1)).BeginTx(t.Context(), nil)
	must(t, err)
	defer tx.Rollback()
	var n int
	must(t, tx.QueryRow("SELECT count(*) FROM t").Scan(&n)) // prevents a restart of the WAL
	rows := func(from, n int) {
		execAll(t, db, fmt.Sprintf("WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<%d) INSERT INTO t SELECT i+%d, 0, randomblob(450) FROM s", n, from))
	}
	rows(0, 40)
	for i := range 3 {
		for _, id := range []int{1, 10, 30} {
			reach()
			f, err := follower.catalog.named("db")
			must(t, err)
			f.mu.Lock()
			f.recent = nil
			f.mu.Unlock()
			execAll(t, db, fmt.Sprintf("UPDATE t SET n=n+1 WHERE id=%d", id))
			reach()
			if got := value(t, open(t, follower, "db", Stale(-1)), fmt.Sprintf("SELECT n FROM t WHERE id=%d", id)); got != fmt.Sprint(i+1) {
				t.Errorf("row %d has %s, want %d", id, got, i+1)
			}
		}
		if i == 0 {
			// The newest frames of the pages are then in the first block.
			for k := range 5 {
				rows(40+900*k, 900)
			}
		}
	}
	if s := follower.Stats(); s.Broken != 0 || s.Fetched != 0 {
		t.Errorf("the follower repaired its file: %+v", s)
	}
	c.judge()
}

// lateCommits is a network in which one member does not learn what is committed after an index.
type lateCommits struct {
	network
	late  *atomic.Pointer[string]
	index *atomic.Uint64
}

func (n lateCommits) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if late := n.late.Load(); late != nil && string(id) == *late {
		a := *args
		a.LeaderCommitIndex = min(a.LeaderCommitIndex, n.index.Load())
		args = &a
	}
	return n.network.AppendEntries(id, target, args, resp)
}

func (n lateCommits) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// lateCluster returns a cluster with two of its three nodes: the leader, and a member that has 60 rows of "db" in its log and does
// not know that they are committed. away is the third one, which was stopped before, "" if an election came between.
func lateCluster(t *testing.T, files disk) (c *cluster, commits lateCommits, leader, late *Node, away string) {
	commits = lateCommits{late: new(atomic.Pointer[string]), index: new(atomic.Uint64)}
	c = startCluster(t, 3, Options{SnapshotEntries: 20, Election: time.Second, snapshotEvery: time.Hour, disk: files,
		around: func(n network) network { return lateCommits{n, commits.late, commits.index} }}, noBug)
	c.campaign()
	leader = c.commit("CREATE TABLE IF NOT EXISTS t(x)")
	c.judge()
	others := c.followers()
	if len(others) != 2 || slices.Contains(others, leader) {
		return c, commits, leader, nil, ""
	}
	late = others[0]
	id := late.ID()
	c.stop(others[1].ID())
	commits.index.Store(late.raft.AppliedIndex())
	commits.late.Store(&id)
	db := open(t, leader, "db")
	for range 60 {
		if _, err := db.Exec("INSERT INTO t VALUES(1)"); err != nil {
			return c, commits, leader, late, ""
		}
	}
	return c, commits, leader, late, others[1].ID()
}

// TestRestoreWithoutLeader: a member installs a snapshot whose data only the leader can give, and
// the leader dies. The third member has the data in its log, and needs the vote of the first
// one to learn that they are committed.
// Promise: replica/member-waits-files
func TestRestoreWithoutLeader(t *testing.T) {
	t.Parallel()
	for !restoreWithoutLeader(t) { // an election came between, as on a busy machine
	}
}

// restoreWithoutLeader reports whether the same node led until the test closed it. Another leader gives the files, and
// without it no node can lead: it alone has its entries, and the first one, whose listener is closed, is not asked for a vote.
func restoreWithoutLeader(t *testing.T) bool {
	c, commits, leader, _, away := lateCluster(t, disk{})
	if away == "" {
		return false
	}
	must(t, leader.raft.Snapshot().Error())
	must(t, leader.wire.listener.Close()) // it sends its snapshot, and gives no files
	z := c.start(away)
	until(t, "the member has installed the snapshot and lacks the data", func() bool {
		return len(z.Status().Broken) > 0 || c.leader() != leader
	})
	if c.leader() != leader {
		return false
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = leader.Close()
	}()
	commits.late.Store(nil)
	c.mu.Lock()
	delete(c.nodes, leader.ID())
	c.mu.Unlock()
	next := c.leader()
	until(t, "the new leader has the data", func() bool { return len(next.Status().Broken) == 0 })
	if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != "60" {
		t.Errorf("%s rows", got)
	}
	<-over
	c.start(leader.ID())
	c.judge()
	return true
}

// TestRestoreAfterHandOver: a member installs a snapshot whose data only the leader can give, and the leader hands over to
// a member that has the data in its log and does not know that they are committed. That one leads, and
// can give the data when the first member has acknowledged an entry.
// Promise: replica/member-waits-files
// Promise: replica/old-files-damage
func TestRestoreAfterHandOver(t *testing.T) {
	t.Parallel()
	for !restoreAfterHandOver(t) { // an election came between, as on a busy machine
	}
}

// restoreAfterHandOver reports whether the nodes led that it has chosen.
func restoreAfterHandOver(t *testing.T) bool {
	var without atomic.Pointer[string] // the directory of the member that gets no files
	c, commits, old, next, away := lateCluster(t, disk{around: func(path string, sync func() error) error {
		if dir := without.Load(); dir != nil && strings.HasPrefix(path, *dir+"/") && strings.HasSuffix(path, "db.new") {
			return errors.New("refused by the test")
		}
		return sync()
	}})
	if away == "" {
		return false
	}
	snapshot := old.raft.Snapshot()
	must(t, snapshot.Error())
	m, content, err := snapshot.Open()
	must(t, err)
	must(t, content.Close())
	dir := filepath.Join(c.dir, away)
	without.Store(&dir)
	n := c.start(away)
	until(t, "the member has installed the snapshot and lacks the data", func() bool {
		return len(n.Status().Broken) > 0 || c.leader() != old
	})
	restores := func() bool { return len(n.Status().Broken) > 0 && n.raft.AppliedIndex() < m.Index }
	until(t, "a leader that has the data", func() bool {
		return n.repairs.leaderHas(t.Context(), old.progress.applied.Load()) || c.leader() != old
	})
	if c.leader() != old || !restores() {
		return false
	}
	if old.raft.LeadershipTransferToServer(raft.ServerID(next.ID()), raft.ServerAddress(next.Address())).Error() != nil {
		return false
	}
	c.stop(old.ID())
	if !restores() || next.raft.AppliedIndex() > commits.index.Load() {
		return false
	}
	until(t, "the new leader commits an entry, which the member acknowledges without the data", func() bool { return c.leader() == next })
	if pos, err := next.Position("db"); err != nil || pos.Seq < 60 {
		t.Errorf("%v: %v", pos, err)
	}
	if _, err := open(t, next, "db").Exec("INSERT INTO t VALUES(2)"); err != nil {
		t.Logf("another election: %v", err)
		return false
	}
	if _, err := open(t, n, "db", Stale(-1)).Exec("SELECT * FROM t"); err == nil {
		t.Error("the member answers without the data")
	}
	if _, err := (fsm{n}).Snapshot(); err == nil {
		t.Error("the member's log may be cut, which has what the member acknowledged")
	}
	marked := func() bool {
		n.membership.mu.RLock()
		defer n.membership.mu.RUnlock()
		return n.membership.fetching
	}
	if !marked() {
		t.Error("after a kill the old file would be taken for damage")
	}
	without.Store(nil)
	until(t, "the member has the data", func() bool { return len(n.Status().Broken) == 0 })
	must(t, n.raft.Snapshot().Error())
	if marked() {
		t.Error("after a kill damage would be taken for an old file")
	}
	commits.late.Store(nil)
	c.start(old.ID())
	c.judge()
	if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); got != "61" {
		t.Errorf("%s rows", got)
	}
	return true
}

// votes counts the elections that a node has tried.
type votes struct {
	network
	tried *sync.Map
}

func (n votes) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	count, _ := n.tried.LoadOrStore(string(n.LocalAddr()), new(atomic.Int64))
	count.(*atomic.Int64).Add(1)
	return n.network.RequestPreVote(id, target, args, resp)
}

// TestEmptiedMember: a member that is opened with an empty directory has forgotten what it
// acknowledged. It and a member that lacks these commits must not elect a leader.
// Promise: replica/linearizable-read-confirmed
// Promise: replica/member-gets-empty
// Promise: replica/member-whose-directory
// Promise: replica/vote-member-opened
func TestEmptiedMember(t *testing.T) {
	var tried sync.Map
	c := newCluster(t, 3, Options{Election: 400 * time.Millisecond, around: func(n network) network { return votes{n, &tried} }})
	c.commit("CREATE TABLE IF NOT EXISTS t(x)")
	until(t, "all have recorded the directories", func() bool {
		for _, n := range c.all() {
			n.membership.mu.RLock()
			known := len(n.membership.dirs.Members)
			n.membership.mu.RUnlock()
			if known != 3 {
				return false
			}
		}
		return true
	})
	lacks := c.followers()[0].ID()
	c.stop(lacks)
	leader := c.commit("INSERT INTO t SELECT 'acknowledged' WHERE NOT EXISTS(SELECT * FROM t)") // by it and the other one
	emptied := c.other(leader).ID()
	c.stop(leader.ID())
	c.stop(emptied)
	must(t, os.RemoveAll(filepath.Join(c.dir, emptied)))
	tried.Clear()
	c.start(lacks)
	n := c.start(emptied)
	until(t, "elections without the acknowledged commit", func() bool {
		for _, m := range c.all() {
			if m.raft.State() == raft.Leader {
				t.Fatalf("%s leads without an acknowledged commit", m.ID())
			}
		}
		both := 0
		for _, m := range c.all() {
			if count, ok := tried.Load(m.Address()); ok && count.(*atomic.Int64).Load() >= 3 {
				both++
			}
		}
		return both == 2
	})
	c.start(leader.ID())
	back := c.leader()
	if got := value(t, open(t, back, "db"), "SELECT count(*) FROM t"); got != "1" {
		t.Errorf("%s rows", got)
	}
	term := func() error {
		_, err := back.reads.members.MemberTerm(raft.ServerID(emptied), raft.ServerAddress(n.Address()), time.Now().Add(patience))
		return err
	}
	if term() == nil {
		t.Error("its term counts for reads, and it does not know for whom it voted")
	}
	// With its new directory it is a member again after it was removed and added.
	ctx, cancel := contextFor(t)
	defer cancel()
	back.membership.mu.RLock()
	old := back.membership.dirs
	back.membership.mu.RUnlock()
	until(t, "it is removed", func() bool { // a busy machine may change the leader
		back = c.leader()
		err := back.RemoveMember(ctx, emptied)
		return err == nil || strings.Contains(err.Error(), "is not a member")
	})
	until(t, "it is added", func() bool {
		back = c.leader()
		return back.AddMember(ctx, emptied, n.Address()) == nil
	})
	until(t, "its directory is recorded", func() bool {
		back.membership.mu.RLock()
		defer back.membership.mu.RUnlock()
		return back.membership.dirs.Members[emptied].Directory == n.membership.directory
	})
	c.judge()
	must(t, term())
	must(t, n.wire.mayVote(back.ID(), back.Address()))
	must(t, back.wire.mayVote(n.ID(), n.Address()))
	// A member that has the removal in its log, and does not know yet that it is committed, counts
	// the vote, and its own counts.
	back.membership.mu.Lock()
	back.membership.dirs = old
	back.membership.mu.Unlock()
	must(t, back.wire.mayVote(n.ID(), n.Address()))
	n.membership.mu.Lock()
	n.membership.dirs = directories{Place: 1 << 12, Config: 1}
	n.membership.mu.Unlock()
	n.wire.met.Store(back.Address(), meeting{welcome: welcome{ID: back.ID(), Directory: back.membership.directory, Known: old.Members[emptied]}})
	must(t, n.wire.mayVote(back.ID(), back.Address()))
}

// TestAddedAgainBeforeItStarts replaces a disk, and adds the member again before the process with the
// new disk is started. The directory that the leader met before the removal must not be recorded.
// Promise: replica/member-gets-empty
func TestAddedAgainBeforeItStarts(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 2 * time.Second})
	db := open(t, c.leader(), "db")
	execAll(t, db, "CREATE TABLE t(x)")
	recorded := func(id string) uint64 {
		leader := c.leader()
		leader.membership.mu.RLock()
		defer leader.membership.mu.RUnlock()
		return leader.membership.dirs.Members[id].Directory
	}
	member := c.followers()[0]
	id, address := member.ID(), member.Address()
	until(t, "the directory of the member is recorded", func() bool { return recorded(id) == member.membership.directory })
	c.stop(id)
	must(t, os.RemoveAll(filepath.Join(c.dir, id)))
	ctx, cancel := contextFor(t)
	defer cancel()
	must(t, c.leader().RemoveMember(ctx, id))
	leader := c.leader()
	added := make(chan error, 1)
	go func() { added <- leader.AddMember(ctx, id, address) }()
	until(t, "it is a member", func() bool {
		is, _ := standing(leader, id)
		return is
	})
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(1)")
	member = c.start(id)
	if err := <-added; err != nil { // the leader has changed
		until(t, "it votes", func() bool { return c.leader().AddMember(ctx, id, address) == nil })
	}
	until(t, "the new directory of the member is recorded", func() bool { return recorded(id) == member.membership.directory })
	c.judge()
	c.stop(c.followers()[1].ID())
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(2)") // by the votes of both
}

// TestLeaderRemovesItself: a leader that removed itself is a member again when it was added. It need not
// be started again.
// Promise: replica/leader-removed-itself
func TestLeaderRemovesItself(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 2 * time.Second})
	first := c.leader()
	execAll(t, open(t, first, "db"), "CREATE TABLE t(x)")
	ctx, cancel := contextFor(t)
	defer cancel()
	must(t, first.RemoveMember(ctx, first.ID()))
	var second *Node
	until(t, "another leader", func() bool {
		second = c.leader()
		return second != first
	})
	execAll(t, open(t, second, "db"), "INSERT INTO t VALUES(1)")
	must(t, second.AddMember(ctx, first.ID(), first.Address()))
	pos, err := second.Position("db")
	must(t, err)
	must(t, first.Wait(ctx, pos))
	c.judge()
}

// TestFetchBesideWriter: a member gets a file while a writer of that file waits for a majority. The writer
// may wait for this member, which acknowledges nothing before it has the files of a snapshot.
// Promise: replica/member-fetches-file
func TestFetchBesideWriter(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	for _, n := range c.followers() {
		c.stop(n.ID())
	}
	written := make(chan error, 1)
	go func() {
		_, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES(2)")
		written <- err
	}()
	d, err := leader.catalog.named("db")
	must(t, err)
	until(t, "the writer waits", func() bool { return d.writers.Load() > 0 })
	ctx, cancel := contextFor(t)
	defer cancel()
	f, m, pos, err := leader.repairs.imageOf(ctx, d.id, 0)
	must(t, err)
	if d.writers.Load() == 0 {
		t.Errorf("the file was not given before the writer ended: %v", <-written)
	}
	_, sum, err := m.sums()
	must(t, errors.Join(err, m.done(), f.close()))
	if pos.Seq != 2 || sum != pos.Sum {
		t.Errorf("transaction %d, checksum %016x instead of %016x", pos.Seq, sum, pos.Sum)
	}
}

// TestCutLog: a log that is too large is cut by a snapshot, and none is taken if it has only entries
// that raft keeps.
// Promise: replica/log-exceeds-logbytes
func TestCutLog(t *testing.T) {
	c := newCluster(t, 1, Options{SnapshotEntries: 100, LogBytes: 1})
	n := c.leader()
	db := open(t, n, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	n.cutLog()
	if at := n.raft.Stats()["last_snapshot_index"]; at != "0" {
		t.Errorf("a snapshot at %s, after which nothing can be cut", at)
	}
	for range 110 {
		execAll(t, db, "INSERT INTO t VALUES(1)")
	}
	n.cutLog()
	if first, err := n.store.FirstIndex(); err != nil || first < 10 {
		t.Errorf("the log begins at entry %d: %v", first, err)
	}
}

// heartbeats has the times of the last heartbeats to each member without a failure between them.
type heartbeats struct {
	network
	mu    *sync.Mutex
	times map[string][]time.Time
}

func (h heartbeats) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	at := time.Now()
	err := h.network.AppendEntries(id, target, args, resp)
	if len(args.Entries) > 0 || args.PrevLogEntry > 0 || args.LeaderCommitIndex > 0 {
		return err
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	pair := fmt.Sprint(h.LocalAddr(), " to ", target)
	if h.times[pair] = append(h.times[pair], at); err != nil {
		h.times[pair] = nil
	}
	return err
}

// TestHeartbeats: an idle leader sends each member one heartbeat per interval, which is less often
// than raft calls for it.
func TestHeartbeats(t *testing.T) {
	var mu sync.Mutex
	times := make(map[string][]time.Time)
	o := Options{Election: 600 * time.Millisecond, around: func(n network) network { return heartbeats{n, &mu, times} }}
	newCluster(t, 3, o)
	const count = 20
	until(t, "heartbeats to a member", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for pair, list := range times {
			if len(list) < count+2 {
				continue
			}
			// The first one may be late, and the one before it may have failed.
			if took, least := list[count+1].Sub(list[1]), (count-1)*o.Election/6; took < least {
				t.Errorf("%s: %d heartbeats in %v, less than %v", pair, count, took, least)
			}
			return true
		}
		return false
	})
}

// TestHeaderOfNewWALIsSynced: when a follower begins a WAL, the header is durable before the
// frames.
// Promise: replica/follower-s-wal
func TestHeaderOfNewWALIsSynced(t *testing.T) {
	var mu sync.Mutex
	synced := make(map[string]bool)
	var o Options
	o.disk.around = func(path string, f func() error) error {
		p, _ := os.ReadFile(path)
		err := f()
		// No frame follows it yet: those in the file have the salts of another header.
		const salts = walHeaderSize + 8
		if err == nil && (len(p) == walHeaderSize || len(p) > salts+8 && !bytes.Equal(p[salts:salts+8], p[16:24])) {
			mu.Lock()
			synced[path+string(p[:walHeaderSize])] = true
			mu.Unlock()
		}
		return err
	}
	c := newCluster(t, 2, o)
	leader, follower := c.leader(), c.followers()[0]
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	for range 3 {
		execAll(t, db, "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM s WHERE i<600) INSERT INTO t SELECT randomblob(3500) FROM s")
		caughtUp(t, leader, "db", follower)
		f, err := follower.catalog.named("db")
		must(t, err)
		f.mu.Lock()
		p, err := os.ReadFile(f.path + "-wal")
		f.mu.Unlock()
		must(t, err)
		mu.Lock()
		if len(p) > walHeaderSize && !synced[f.path+"-wal"+string(p[:walHeaderSize])] {
			t.Error("frames follow a header that was not synced")
		}
		mu.Unlock()
	}
	c.judge()
}

// TestSnapshotAgain: a follower whose files are newer than a snapshot of the leader fetches
// nothing for it, and continues with the entries after the snapshot. Raft sends a snapshot
// again if the first attempt took too long, and the first one has brought newer files.
// Promise: replica/snapshot-raft-sends
func TestSnapshotAgain(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	c.judge()
	state, err := fsm{leader}.Snapshot()
	must(t, err)
	m := state.(*snapshot).m
	execAll(t, db, "INSERT INTO t VALUES(2)", "INSERT INTO t VALUES(3)")
	c.judge()
	n := c.followers()[0]
	pos, err := n.Position("db")
	must(t, err)
	for range 2 {
		must(t, fsm{n}.restore(m))
		if got, err := n.Position("db"); err != nil || got.Seq != m.Databases[0].Position.Seq {
			t.Fatalf("at %v after the snapshot at %v: %v", got, m.Databases[0].Position, err)
		}
	}
	for i := m.Index + 1; i <= pos.Index; i++ {
		var l raft.Log
		must(t, n.store.GetLog(i, &l))
		if l.Type == raft.LogCommand {
			fsm{n}.Apply(&l)
		}
	}
	if got, err := n.Position("db"); err != nil || got != pos {
		t.Errorf("at %v instead of %v: %v", got, pos, err)
	}
	if s := n.Stats(); s.Fetched+s.Broken > 0 {
		t.Errorf("a file that was newer than the snapshot was fetched: %+v", s)
	}
	c.judge()
	execAll(t, db, "INSERT INTO t VALUES(4)")
	c.judge()
}

// TestOlderSnapshot sends a member a snapshot that is older than the member's own, whose log no
// longer has the entries between the two.
// Promise: replica/member-refuses-snapshot
func TestOlderSnapshot(t *testing.T) {
	c := newCluster(t, 2, Options{SnapshotEntries: 10, snapshotEvery: time.Hour})
	leader, member := c.leader(), c.followers()[0]
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)")
	must(t, leader.raft.Snapshot().Error())
	files, err := raft.NewFileSnapshotStore(filepath.Join(leader.opts.Dir, "raft"), 2, io.Discard)
	must(t, err)
	list, err := files.List()
	must(t, err)
	m, data, err := files.Open(list[0].ID)
	must(t, err)
	defer data.Close()
	for range 40 {
		execAll(t, db, "INSERT INTO t VALUES(1)")
	}
	caughtUp(t, leader, "db", member)
	must(t, member.raft.Snapshot().Error())
	if first, err := member.store.FirstIndex(); err != nil || first <= m.Index+1 {
		t.Fatalf("the log begins at %d: %v", first, err)
	}
	asked := 0
	through := transport{network: leader.reads.members, newSnapshot: func() { asked++ }}
	err = through.InstallSnapshot(raft.ServerID(member.ID()), raft.ServerAddress(member.Address()), &raft.InstallSnapshotRequest{
		RPCHeader:       raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(leader.ID()), Addr: []byte(leader.Address())},
		SnapshotVersion: m.Version, Term: leader.raft.CurrentTerm(), LastLogIndex: m.Index, LastLogTerm: m.Term,
		Configuration: raft.EncodeConfiguration(m.Configuration), ConfigurationIndex: m.ConfigurationIndex, Size: m.Size,
	}, new(raft.InstallSnapshotResponse), data)
	if err == nil || asked != 1 {
		t.Errorf("the older snapshot was not refused: %v; the leader takes %d new ones", err, asked)
	}
	execAll(t, db, "INSERT INTO t VALUES(2)")
	caughtUp(t, leader, "db", member)
	c.judge()
}

// TestKilledWhileFetching: a process that ended while it fetched the files of a snapshot starts
// with an old file. It fetches the file, and reports damage only if it was not fetching.
// Promise: replica/old-files-damage
func TestKilledWhileFetching(t *testing.T) {
	for _, fetching := range []bool{true, false} {
		t.Run(fmt.Sprint("fetching=", fetching), func(t *testing.T) {
			c := newCluster(t, 3, Options{SnapshotEntries: 10, snapshotEvery: time.Hour})
			db := open(t, c.leader(), "db")
			execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
			c.judge()
			victim := c.followers()[0].ID()
			c.stop(victim)
			path := filepath.Join(c.dir, victim, "data", "db")
			old, err := os.ReadFile(path)
			must(t, err)
			n := c.start(victim)
			for range 40 {
				execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(2)")
			}
			c.judge()
			must(t, n.raft.Snapshot().Error())
			must(t, n.membership.setFetching(fetching))
			c.stop(victim)
			must(t, os.WriteFile(path, old, 0o600))
			if err := os.Remove(path + "-wal"); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			n = c.start(victim)
			must(t, n.WaitReady(t.Context()))
			read := open(t, n, "db", Stale(-1))
			until(t, "the file was fetched", func() bool {
				_, err := read.Exec("SELECT 1 FROM t")
				return err == nil && n.Stats().Fetched > 0
			})
			if broken := n.Stats().Broken; (broken == 0) != fetching {
				t.Errorf("fetching %v: %d databases were reported as damaged", fetching, broken)
			}
			c.judge()
		})
	}
}

// TestOutdatedConfiguration: a node without a leader accepts raft's connections of its cluster, also
// of a node that is no member as far as it knows. That node may be the leader, and has been added
// again by entries that this node lacks.
func TestOutdatedConfiguration(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 600 * time.Millisecond})
	leader := c.leader()
	n := c.followers()[0]
	cluster := func() uint64 {
		n.membership.mu.RLock()
		defer n.membership.mu.RUnlock()
		return n.membership.cluster
	}
	until(t, "the cluster has an identity", func() bool { return cluster() != 0 })
	h := &hello{Version: spoken.oldest, Kind: kindRaft, Cluster: cluster(), From: "x", Address: "127.0.0.1:1", To: n.ID()}
	until(t, "a node that is no member is refused beside a leader", func() bool { return n.wire.judge(h) != nil })
	for _, other := range c.all() {
		if other != n {
			c.stop(other.ID())
		}
	}
	until(t, "there is no leader", func() bool { return n.wire.judge(h) == nil })
	h.Address, h.From, h.Directory = "127.0.0.1:2", leader.ID(), leader.membership.directory // it was added with another address
	if err := n.wire.judge(h); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(h *hello){
		"another cluster": func(h *hello) { h.Cluster++ },
		"no cluster":      func(h *hello) { h.Cluster = 0 },
		"requests":        func(h *hello) { h.Kind = kindRequest },
	} {
		other := *h
		change(&other)
		if err := n.wire.judge(&other); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// TestReceivedSnapshotIsMarked: from the end of another node's snapshot on, a restart knows that the
// files have not been fetched. One of its own that ends meanwhile does not change that.
func TestReceivedSnapshotIsMarked(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
	store := snapshotStore{raft.NewInmemSnapshotStore(), n}
	sink := func() raft.SnapshotSink {
		s, err := store.Create(1, 1<<40, 1, raft.Configuration{}, 1, nil)
		must(t, err)
		return s
	}
	marked := func() bool {
		p, err := os.ReadFile(n.membership.path())
		must(t, err)
		var id identity
		must(t, json.Unmarshal(p, &id))
		return id.Fetching
	}
	take := func() raft.FSMSnapshot {
		s, err := fsm{n}.Snapshot()
		must(t, err)
		return s
	}
	must(t, take().Persist(sink()))
	if marked() {
		t.Error("a snapshot of this node is taken for another node's")
	}
	before := take()
	must(t, sink().Close())
	if !marked() {
		t.Error("nothing shows that the files of the snapshot are missing")
	}
	must(t, before.Persist(sink()))
	if !marked() {
		t.Error("an older snapshot of this node removed the mark")
	}
	must(t, take().Persist(sink()))
	if marked() {
		t.Error("a later snapshot of this node left the mark")
	}
	// After a restart the file may be old, or newer than what was applied. That is not known before the log was replayed.
	db, err := n.catalog.named("db")
	must(t, err)
	unknown := func(is bool) {
		db.mu.Lock()
		defer db.mu.Unlock()
		db.unsure, db.ahead = is, is
	}
	unknown(true)
	if _, err := (fsm{n}).Snapshot(); !errors.Is(err, errRecovering) {
		t.Errorf("a snapshot, after which raft cuts its log, although the file may be old: %v", err)
	}
	unknown(false)
	take()
}

// TestFirstSnapshotSyncs: the first snapshot after a start syncs all files. A process that was
// killed may have left unsynced writes, whose entries the snapshot lets raft remove.
// Promise: replica/raft-removes-entries
func TestFirstSnapshotSyncs(t *testing.T) {
	var mu sync.Mutex
	synced := map[string]int{}
	c := newCluster(t, 1, Options{disk: disk{around: func(path string, sync func() error) error {
		mu.Lock()
		synced[path]++
		mu.Unlock()
		return sync()
	}}})
	n := c.leader()
	for _, name := range []string{"old", "new"} {
		execAll(t, open(t, n, name), "CREATE TABLE t(x)")
	}
	must(t, n.raft.Snapshot().Error())
	c.stop("a")
	n = c.start("a")
	execAll(t, open(t, c.leader(), "new"), "INSERT INTO t VALUES(1)")
	old, err := n.catalog.named("old")
	must(t, err)
	path := old.path
	mu.Lock()
	before := synced[path]
	mu.Unlock()
	must(t, n.raft.Snapshot().Error())
	mu.Lock()
	defer mu.Unlock()
	if synced[path] == before {
		t.Error("the snapshot did not sync a file that the earlier process may have written to")
	}
}

// TestElectionTimeouts: raft's random timers notice the loss of a leader within one and a half
// times Options.Election..
func TestElectionTimeouts(t *testing.T) {
	n := newCluster(t, 1, Options{Election: time.Second}).node("a")
	o := n.raft.ReloadableConfig()
	if d := 3 * max(o.HeartbeatTimeout, o.ElectionTimeout); d > n.opts.Election*3/2 {
		t.Errorf("a follower may need %v to notice that the leader is gone", d)
	}
}

// countedPipeline counts the requests that it gets.
type countedPipeline struct {
	raft.AppendPipeline
	requests int
}

func (p *countedPipeline) AppendEntries(*raft.AppendEntriesRequest, *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	p.requests++
	return nil, nil
}

// TestIdlePipeline: an idle leader sends heartbeats only. Entries, a new commit index and the
// loss of a heartbeat are sent on at once.
// Promise: replica/idle-leader-sends
func TestIdlePipeline(t *testing.T) {
	below := new(countedPipeline)
	f := new(failures)
	closed := make(chan struct{})
	close(closed)
	p := &pipeline{AppendPipeline: below, id: "b", failures: f, patience: time.Hour, log: new(notedLog), closing: closed}
	sent := func(commit uint64, entries ...*raft.Log) bool {
		before := below.requests
		_, err := p.AppendEntries(&raft.AppendEntriesRequest{LeaderCommitIndex: commit, Entries: entries}, new(raft.AppendEntriesResponse))
		must(t, err)
		return below.requests > before
	}
	for i, step := range []struct {
		before  func()
		commit  uint64
		entries []*raft.Log
		want    bool
	}{
		{commit: 4, want: true}, // the first
		{commit: 4},
		{commit: 4, entries: []*raft.Log{{Index: 5, Type: raft.LogNoop}}, want: true},
		{commit: 4},
		{commit: 5, want: true},
		{commit: 5},
		{before: func() { f.note("c", true) }, commit: 5},
		{before: func() { f.note("b", true) }, commit: 5, want: true},
		{commit: 5},
		{before: func() { p.sent = p.sent.Add(-time.Hour) }, commit: 5, want: true},
		{commit: 5},
	} {
		if step.before != nil {
			step.before()
		}
		if got := sent(step.commit, step.entries...); got != step.want {
			t.Errorf("step %d: sent %v, want %v", i, got, step.want)
		}
	}
}

// unreachable is a network on which no member answers.
type unreachable struct{ network }

func (unreachable) AppendEntries(raft.ServerID, raft.ServerAddress, *raft.AppendEntriesRequest, *raft.AppendEntriesResponse) error {
	return net.ErrClosed
}

// TestLostHeartbeatWakesThePipeline: a pipeline that waits is called again after a heartbeat that failed.
func TestLostHeartbeatWakesThePipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, f := new(notedLog), new(failures)
		p := &pipeline{AppendPipeline: new(countedPipeline), id: "b", failures: f, patience: time.Hour, log: log}
		w := transport{network: unreachable{}, failures: f, log: log, beats: beats{time.Now(), time.Second, nil}}
		for range 2 { // the first is sent
			_, err := p.AppendEntries(new(raft.AppendEntriesRequest), new(raft.AppendEntriesResponse))
			must(t, err)
		}
		const soon = 10 * time.Millisecond
		w.beats.begin = time.Now().Add(soon - time.Second) // the next heartbeat
		go w.AppendEntries("b", "", new(raft.AppendEntriesRequest), nil)
		begin := time.Now()
		_, err := p.AppendEntries(new(raft.AppendEntriesRequest), new(raft.AppendEntriesResponse))
		must(t, err)
		if took := time.Since(begin); took != soon {
			t.Errorf("the pipeline waited for %v beside a heartbeat that failed after %v", took, soon)
		}
	})
}

// TestQuietPipelineWaits: a call that would send nothing waits until entries are stored or
// committed, and no longer than mostQuiet.
func TestQuietPipelineWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(notedLog)
		p := &pipeline{AppendPipeline: new(countedPipeline), id: "b", failures: new(failures), patience: time.Hour, log: log}
		took := func() time.Duration {
			begin := time.Now()
			_, err := p.AppendEntries(new(raft.AppendEntriesRequest), new(raft.AppendEntriesResponse))
			must(t, err)
			return time.Since(begin)
		}
		const soon = 10 * time.Millisecond
		later := func() { time.AfterFunc(soon, log.note) }
		for i, step := range []struct {
			before func()
			want   time.Duration
		}{
			{nil, 0}, // the first is sent
			{nil, mostQuiet},
			{later, soon},
			{nil, mostQuiet},
			{log.note, 0},
			{nil, mostQuiet},
		} {
			if step.before != nil {
				step.before()
			}
			if got := took(); got != step.want {
				t.Errorf("call %d took %v, want %v", i, got, step.want)
			}
		}
	})
}

// TestJoinAfterDelete: a member that gets a snapshot with a database that was deleted since does not wait
// for the database's file. Raft hands it no entry before it has the snapshot, so it would not learn of the
// deletion.
// Promise: replica/databases-cannot-repaired
func TestJoinAfterDelete(t *testing.T) {
	c := newCluster(t, 3, Options{SnapshotEntries: 20})
	leader := c.leader()
	ctx := t.Context()
	for _, name := range []string{"deleted", "kept"} {
		db := open(t, leader, name)
		execAll(t, db, "CREATE TABLE t(x)")
		for range 30 {
			execAll(t, db, "INSERT INTO t VALUES(1)")
		}
	}
	c.judge()
	for _, n := range c.all() {
		must(t, n.raft.Snapshot().Error())
	}
	must(t, leader.Delete(ctx, "deleted"))
	d := c.join("d")
	until(t, "the new node has the databases", func() bool {
		return fmt.Sprint(d.List()) == "[kept]" && d.progress.recovered.Load() && len(d.Status().Broken) == 0
	})
	c.judge()
}
