// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3/vfs"

	"github.com/ringside-io/ringside/internal/sys"
)

// fakeDisk replaces the system calls of a group.
type fakeDisk struct {
	mu      sync.Mutex
	written map[int]int // by file: how often it was written
	durable map[int]int
	plain   atomic.Int64
	shared  atomic.Int64
	hold    chan struct{} // if not nil, plain syncs wait for it
	slow    chan struct{} // if not nil, syncfs waits for it
	failAll error
	failOne map[int]error
}

func (d *fakeDisk) group() *syncGroup {
	d.written, d.durable, d.failOne = map[int]int{}, map[int]int{}, map[int]error{}
	return &syncGroup{
		forced:   true,
		minLimit: time.Minute, // no pause
		syncFile: func(fd int) error {
			d.plain.Add(1)
			if d.hold != nil {
				<-d.hold
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			d.durable[fd] = d.written[fd]
			return d.failOne[fd]
		},
		syncAll: func(int) error {
			d.shared.Add(1)
			d.mu.Lock()
			is := map[int]int{}
			for fd, n := range d.written {
				is[fd] = n
			}
			d.mu.Unlock()
			if d.slow != nil {
				<-d.slow
			}
			d.mu.Lock()
			defer d.mu.Unlock()
			for fd, n := range is {
				d.durable[fd] = max(n, d.durable[fd])
			}
			return d.failAll
		},
		writeError: func(fd int) error {
			d.mu.Lock()
			defer d.mu.Unlock()
			return d.failOne[fd]
		},
	}
}

func (d *fakeDisk) write(fd int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.written[fd]++
	return d.written[fd]
}

func (d *fakeDisk) kept(fd int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.durable[fd]
}

// state waits until cond returns true.
func (g *syncGroup) state(t *testing.T, cond func() bool) {
	t.Helper()
	for start := time.Now(); ; {
		g.mu.Lock()
		ok := cond()
		g.mu.Unlock()
		if ok {
			return
		}
		if time.Since(start) > 10*time.Second {
			t.Fatalf("the group did not reach the state: %d running, leading %v, %d waiting", g.alone, g.leading, len(g.waiting))
		}
		time.Sleep(time.Millisecond)
	}
}

func TestGroupMakesDurableWhatWasWrittenBefore(t *testing.T) {
	d := &fakeDisk{}
	g := d.group()
	var wg sync.WaitGroup
	for fd := range 32 {
		wg.Go(func() {
			for range 200 {
				n := d.write(fd)
				if _, err := g.sync(fd, fd); err != nil {
					t.Error(err)
				}
				if kept := d.kept(fd); kept < n {
					t.Errorf("file %d: %d written, %d durable", fd, n, kept)
					return
				}
			}
		})
	}
	wg.Wait()
	if g.alone != 0 || g.leading || len(g.waiting) != 0 {
		t.Errorf("left behind: %d running, leading %v, %d waiting", g.alone, g.leading, len(g.waiting))
	}
}

func TestFewDatabasesSyncByThemselves(t *testing.T) {
	d := &fakeDisk{hold: make(chan struct{})}
	g := d.group()
	var wg sync.WaitGroup
	for fd := range minGroup - 1 {
		wg.Go(func() { g.sync(fd, fd) })
	}
	g.state(t, func() bool { return g.alone == minGroup-1 })
	close(d.hold)
	wg.Wait()
	if d.shared.Load() != 0 {
		t.Error("syncfs was called")
	}
}

// firstComers is how many callers of a crowd sync by themselves.
const firstComers = minGroup - 1

// crowd starts callers, of which some sync by themselves and enough wait for each other.
func crowd(t *testing.T, d *fakeDisk, g *syncGroup, wg *sync.WaitGroup, done func(fd int, o outcome, err error)) {
	t.Helper()
	d.hold = make(chan struct{})
	for fd := range firstComers + minGroup {
		wg.Go(func() {
			d.write(fd)
			o, err := g.sync(fd, fd)
			done(fd, o, err)
		})
		if fd < firstComers {
			g.state(t, func() bool { return g.alone == fd+1 })
		}
	}
}

func TestOneSyncFSServesAllWaiters(t *testing.T) {
	d := &fakeDisk{}
	g := d.group()
	var wg sync.WaitGroup
	var shared atomic.Int64
	crowd(t, d, g, &wg, func(_ int, o outcome, err error) {
		if err != nil {
			t.Error(err)
		}
		if o.shared {
			shared.Add(1)
		}
	})
	g.state(t, func() bool { return shared.Load() == minGroup }) // while the other callers still sync
	close(d.hold)
	wg.Wait()
	if d.shared.Load() != 1 || d.plain.Load() != firstComers {
		t.Errorf("%d calls of syncfs, %d of fdatasync", d.shared.Load(), d.plain.Load())
	}
}

// Promise: sqlitevfs/disk-error-fails
func TestGroupReportsWhichWriteFailed(t *testing.T) {
	for _, all := range []error{nil, syscall.EIO} {
		d := &fakeDisk{failAll: all}
		g := d.group()
		d.failOne[firstComers+1] = syscall.ENOSPC
		var wg sync.WaitGroup
		crowd(t, d, g, &wg, func(fd int, _ outcome, err error) {
			if want := d.failOne[fd]; !errors.Is(err, want) || (want == nil) != (err == nil) {
				t.Errorf("syncfs returned %v, file %d: %v", all, fd, err)
			}
		})
		close(d.hold)
		wg.Wait()
	}
}

func TestSlowSyncFSReleasesFollowers(t *testing.T) {
	d := &fakeDisk{slow: make(chan struct{})}
	g := d.group()
	g.minLimit = time.Second // long enough for all to join
	var wg sync.WaitGroup
	var ended atomic.Int64
	crowd(t, d, g, &wg, func(int, outcome, error) { ended.Add(1) })
	g.state(t, func() bool { return g.leading })
	close(d.hold)
	g.state(t, func() bool { return ended.Load() == firstComers+minGroup-1 }) // all except the leader
	g.mu.Lock()
	g.aloneTime = time.Millisecond // a slow machine made it longer
	g.mu.Unlock()
	close(d.slow)
	wg.Wait()
	if !g.paused(time.Now()) {
		t.Error("syncfs is still used")
	}
	if o, err := g.sync(1, 1); o.shared || err != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

// TestWALSharesNoSyncs commits with synchronous=FULL and NORMAL, with a row and a blob. The syncs of WAL
// mode neither wait for other databases nor count as syncs that could be shared, unless group sync is forced.
func TestWALSharesNoSyncs(t *testing.T) {
	for _, name := range []string{register(t, Options{}), NameLog, NameGroup} {
		path := dbFile(t)
		c := connect(t, path, name)
		execSQL(t, c, "PRAGMA journal_mode=WAL; PRAGMA wal_autocheckpoint=40; CREATE TABLE t(v); INSERT INTO t VALUES(1)")
		db := vfs.Find(name).(*ringVFS).dbs.of(path + suffixWAL)
		var syncs atomic.Int64
		g := newSyncGroup()
		g.forced = name == NameGroup
		g.syncFile = func(fd int) error {
			syncs.Add(1)
			return sys.Fdatasync(fd)
		}
		db.group = g

		for _, mode := range []string{"FULL", "NORMAL"} {
			execSQL(t, c, "PRAGMA synchronous="+mode)
			before := db.stats().Syncs
			for range 100 {
				execSQL(t, c, "INSERT INTO t VALUES(zeroblob(100))")
				execSQL(t, c, "INSERT INTO t VALUES(zeroblob(60000))")
			}
			if n := db.stats().Syncs - before; n < 9 {
				t.Errorf("%s, %s: %d syncs, want 9 or more", name, mode, n)
			}
		}
		if n := syncs.Load(); n != 0 && !g.forced || n == 0 && g.forced {
			t.Errorf("%s: %d syncs went to the group", name, n)
		}
		syncs.Store(0)
		for _, mode := range []string{"DELETE", "PERSIST"} {
			execSQL(t, c, "PRAGMA journal_mode="+mode+"; PRAGMA synchronous=FULL")
			syncs.Store(0)
			execSQL(t, c, "INSERT INTO t VALUES(1)")
			if syncs.Load() == 0 {
				t.Errorf("%s: no sync in mode %s went to the group", name, mode)
			}
		}
	}
}
