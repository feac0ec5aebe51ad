// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var manyDatabases = flag.Int("databases", 60, "how many databases TestManyDatabases creates")

// TestManyDatabases creates databases and uses a hundredth of them at a time. When they are
// idle, they cost no goroutines and no bytes on the wire, and the number of descriptors is
// bounded. With -databases 10000 -v it prints the figures of an idle cluster.
// Promise: replica/idle-databases-cost
// Promise: replica/idle-leader-sends
func TestManyDatabases(t *testing.T) {
	wires := &faultyNet{listen: make(map[string]string), conns: make(map[net.Conn]bool)}
	c := startCluster(t, 3, Options{OpenDatabases: 8, Election: 2 * time.Second}, noBug) // not in parallel: it counts the resources of the process
	for id, address := range c.addrs {
		c.stop(id)
		wires.listen[id] = address
	}
	peers := make(map[string]string)
	for id := range c.addrs {
		peers[id] = wires.wire(t, id)
	}
	for id, address := range c.addrs {
		o := c.options(id)
		must(t, os.RemoveAll(o.Dir))
		o.Peers, o.Listen, o.Advertise = peers, address, peers[id]
		n, err := Open(o)
		must(t, err)
		c.mu.Lock()
		c.nodes[id] = n
		c.mu.Unlock()
	}
	leader := c.leader()
	ctx := t.Context()
	idle := func(d time.Duration) (bytes int64, cpu time.Duration) {
		before, used := wires.bytes.Load(), cpuTime(t)
		time.Sleep(d)
		return wires.bytes.Load() - before, cpuTime(t) - used
	}
	must(t, leader.Create(ctx, "first", CreateOptions{}))
	execAll(t, open(t, leader, "first"), "CREATE TABLE t(x)")
	c.judge()
	const watched = 3 * time.Second
	quiet, _ := idle(watched)
	goroutines, files := runtime.NumGoroutine(), len(ringtest.Descriptors(t, ""))

	begin := time.Now()
	var over sync.WaitGroup
	var next atomic.Int64
	name := func(i int) string { return fmt.Sprintf("tenants/%02d/%d.db", i%100, i) }
	for range 16 {
		over.Go(func() {
			for i := next.Add(1); int(i) <= *manyDatabases; i = next.Add(1) {
				if err := leader.Create(ctx, name(int(i)), CreateOptions{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	over.Wait()
	created := time.Since(begin)
	// The working set changes.
	begin = time.Now()
	next.Store(0)
	for range max(2, min(100, *manyDatabases/100)) {
		over.Go(func() {
			for i := next.Add(1); int(i) <= *manyDatabases; i = next.Add(1) {
				db, err := leader.Open(name(int(i)))
				if err == nil {
					_, err = db.ExecContext(ctx, "CREATE TABLE t(x); INSERT INTO t VALUES(1)")
					err = errors.Join(err, db.Close())
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	over.Wait()
	opened := time.Since(begin)
	pos, err := leader.Position(name(*manyDatabases))
	must(t, err)
	for _, n := range c.all() {
		must(t, n.Wait(ctx, pos))
		if got := len(n.List()); got != *manyDatabases+1 {
			t.Errorf("%s has %d databases", n.ID(), got)
		}
	}
	until(t, "the goroutines have ended", func() bool { return runtime.NumGoroutine() <= goroutines+10 })
	// An open database has the descriptors of a connection, and as many for its writes.
	until(t, "files are closed", func() bool { return len(ringtest.Descriptors(t, "")) <= files+6*3*(8+1) })
	busy, cpu := idle(watched)
	// An idle cluster exchanges heartbeats. The cost of the databases would be added to
	// that.
	if most := 2*quiet + 32<<10; busy > most {
		t.Errorf("%d bytes on the wire in %v with idle databases, %d with one", busy, watched, quiet)
	}
	t.Logf("%d databases on three nodes in one process: created in %v, opened, written and closed in %v; idle for %v: %.2f %% of a processor, %d bytes on the wire (%d with one database), %d goroutines (%d), %d descriptors (%d)",
		*manyDatabases, created.Round(time.Millisecond), opened.Round(time.Millisecond), watched, 100*cpu.Seconds()/watched.Seconds(), busy, quiet, runtime.NumGoroutine(), goroutines, len(ringtest.Descriptors(t, "")), files)
}

func cpuTime(t *testing.T) time.Duration {
	var u syscall.Rusage
	must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestCreateDropStorm creates, writes and deletes databases from many goroutines, while nodes
// take snapshots and a follower is restarted. Each node then has the databases that were
// not deleted, and no other files.
// Promise: replica/databases-created-deleted
func TestCreateDropStorm(t *testing.T) {
	c := newCluster(t, 3, Options{SnapshotEntries: 50, OpenDatabases: 4})
	leader := c.leader()
	ctx := t.Context()
	var mu sync.Mutex
	var kept []string
	var over sync.WaitGroup
	for worker := range 8 {
		over.Go(func() {
			for round := range size(4, 12) {
				name := fmt.Sprintf("storm/%d/%d.db", worker%3, worker)
				if round%4 == 3 {
					name = fmt.Sprintf("kept/%d-%d.db", worker, round)
				}
				err := leader.Create(ctx, name, CreateOptions{})
				if err == nil {
					err = leader.Do(ctx, name, func(tx *sql.Tx) error {
						_, err := tx.Exec("CREATE TABLE t(x); INSERT INTO t VALUES(randomblob(9000))")
						return err
					})
				}
				if err == nil && round%4 != 3 {
					err = leader.Delete(ctx, name)
				}
				if err != nil {
					t.Errorf("%s: %v", name, err)
					return
				}
				if round%4 == 3 {
					mu.Lock()
					kept = append(kept, name)
					mu.Unlock()
				}
			}
		})
	}
	restarted := c.followers()[0].ID()
	c.stop(restarted)
	_ = leader.raft.Snapshot().Error() // there may be no new commit
	c.start(restarted)
	over.Wait()
	slices.Sort(kept)
	for _, n := range c.all() {
		until(t, "the list is that of the leader", func() bool {
			return slices.Equal(n.List(), kept) && n.progress.recovered.Load() && len(n.Status().Broken) == 0
		})
		var files []string
		data := filepath.Join(c.dir, n.ID(), "data")
		must(t, filepath.WalkDir(data, func(path string, e fs.DirEntry, err error) error {
			if err == nil && !e.IsDir() && e.Name() != sealFile && !strings.HasSuffix(path, "-wal") && !strings.HasSuffix(path, "-shm") {
				rel, err := filepath.Rel(data, path)
				files = append(files, filepath.ToSlash(rel))
				return err
			}
			return err
		}))
		if slices.Sort(files); !slices.Equal(files, kept) {
			t.Errorf("%s has the files %q instead of %q", n.ID(), files, kept)
		}
	}
	c.judge()
}

// TestHotDatabase: many writers of one database do not take the share of writers of other
// databases.
// Promise: replica/writers-database-keep
func TestHotDatabase(t *testing.T) {
	c := newCluster(t, 3, Options{})
	leader := c.leader()
	const cold = 6
	var dbs []*sql.DB
	for i := range cold + 1 {
		db := open(t, leader, fmt.Sprint("db", i))
		execAll(t, db, "CREATE TABLE t(x)")
		dbs = append(dbs, db)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var counts [cold + 1]atomic.Int64
	var over sync.WaitGroup
	write := func(i, bytes int) {
		for counts[0].Load() < int64(size(80, 300)) {
			if _, err := dbs[i].ExecContext(ctx, "INSERT INTO t VALUES(randomblob(?))", bytes); err != nil {
				t.Error(err)
				cancel()
				return
			}
			counts[i].Add(1)
		}
	}
	for range 16 {
		over.Go(func() { write(0, 20000) })
	}
	for i := 1; i <= cold; i++ {
		over.Go(func() { write(i, 100) })
	}
	over.Wait()
	for i := 1; i <= cold; i++ {
		// Each database writes one transaction at a time, so each has the same share.
		if n := counts[i].Load(); n < counts[0].Load()/4 {
			t.Errorf("database %d has committed %d times, the hot one %d times", i, n, counts[0].Load())
		}
	}
	c.judge()
}
