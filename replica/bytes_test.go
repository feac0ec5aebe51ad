// SPDX-License-Identifier: MIT

package replica

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
	"github.com/ringside-io/ringside/replica/internal/raftlog"
)

// TestBytesInFlight: a leader whose followers get no entries keeps a bounded number of bytes in raft's queue,
// however many transactions wait.
func TestBytesInFlight(t *testing.T) {
	const writers, size, flight = 6, 2 << 20, 1 << 20
	l := new(lag)
	c := newCluster(t, 3, Options{around: l.around, flight: flight, Election: 8 * time.Second})
	leader := c.leader()
	for i := range writers {
		execAll(t, open(t, leader, fmt.Sprint(i)), "CREATE TABLE t(x)")
	}
	c.judge()
	l.set("", true)
	before := leader.raft.LastIndex()
	results := make(chan error, writers)
	for i := range writers {
		db := open(t, leader, fmt.Sprint(i))
		go func() {
			_, err := db.ExecContext(t.Context(), fmt.Sprintf("INSERT INTO t VALUES(randomblob(%d))", size))
			results <- err
		}()
	}
	until(t, "all transactions wait", func() bool {
		leader.proposer.mu.Lock()
		defer leader.proposer.mu.Unlock()
		return len(leader.proposer.pending) >= writers && leader.proposer.flying.Load() >= flight && leader.raft.LastIndex() > before
	})
	most := flight + entryBytes + size + size/4 // an entry has entryBytes and one more transaction
	if got := leader.proposer.flying.Load(); got > int64(most) {
		t.Errorf("%d bytes are in flight, more than %d", got, most)
	}
	logged := 0
	for i := before + 1; i <= leader.raft.LastIndex(); i++ {
		var l raft.Log
		must(t, leader.store.GetLog(i, &l))
		logged += len(l.Data)
	}
	t.Logf("%d transactions of %d bytes wait; raft has %d bytes", writers, size, logged)
	if logged > most {
		t.Errorf("raft has %d bytes, more than %d", logged, most)
	}
	l.set("", false)
	for range writers {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	if got := leader.proposer.flying.Load(); got > int64(most) {
		t.Errorf("%d bytes are in flight after the commits", got)
	}
	c.judge()
}

// TestLargeEntriesStayOnDisk: raft reads 64 entries at once, for a follower and for the state machine. It
// gets those that are large without their data, and a request has as much as it may have.
func TestLargeEntriesStayOnDisk(t *testing.T) {
	const entries, size = 64, 1 << 20
	store, err := raftlog.Open(t.TempDir(), raftlog.Options{Sync: appendlog.SyncNone})
	must(t, err)
	defer store.Close()
	l := &notedLog{Store: store}
	for i := range entries {
		data := make([]byte, size)
		data[0] = byte(i)
		must(t, l.StoreLog(&raft.Log{Index: uint64(i + 1), Term: 1, Type: raft.LogCommand, Data: data}))
	}
	read := func() (all []*raft.Log, bytes int) { // as raft's setNewLogs and processLogs
		for i := range entries {
			e := new(raft.Log)
			must(t, raftLog{l}.GetLog(uint64(i+1), e))
			all = append(all, e)
			bytes += len(e.Data)
		}
		return all, bytes
	}
	all, bytes := read()
	t.Logf("raft holds %d of %d bytes", bytes, entries*size)
	if bytes > entries*64<<10 {
		t.Errorf("raft holds %d bytes", bytes)
	}
	args := &raft.AppendEntriesRequest{Entries: all}
	must(t, l.load(args))
	if got := len(args.Entries); got != requestBytes/size {
		t.Errorf("a request has %d entries", got)
	}
	for i, e := range all {
		want := 0
		if i < len(args.Entries) {
			want = size
		}
		if len(e.Data) != want || want > 0 && e.Data[0] != byte(i) {
			t.Errorf("entry %d has %d bytes", i+1, len(e.Data))
		}
	}
	all, _ = read()
	must(t, l.DeleteRange(entries, entries))
	must(t, l.StoreLog(&raft.Log{Index: entries, Term: 2, Type: raft.LogCommand, Data: make([]byte, size)}))
	if err := l.fill(all[entries-1]); err == nil {
		t.Error("an entry got the data of the one that replaced it")
	}
}

// TestLargeTransactions: a follower that was away gets transactions that no longer are in the memory of the leader's log, and
// applies them again after a restart. A request has as much as it may have, not all of them.
func TestLargeTransactions(t *testing.T) {
	var most atomic.Int64
	c := newCluster(t, 3, Options{Election: 3 * time.Second, around: func(n network) network { return measured{n, &most} }})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	away := c.followers()[0].ID()
	c.stop(away)
	insert := func() bool { // a busy machine may change the leader
		_, err := open(t, c.leader(), "db").ExecContext(t.Context(), "INSERT INTO t VALUES(randomblob(3000000))")
		return err == nil
	}
	for range size(7, 20) { // more than a request has
		until(t, "a large transaction", insert)
	}
	for range size(1, 2) {
		n := c.start(away)
		c.judge()
		if s := n.Stats(); s.Fetched != 0 {
			t.Errorf("the database was fetched instead of replayed: %+v", s)
		}
		c.stop(away)
	}
	if size := most.Load(); size < 3_000_000 || size > 16<<20 {
		t.Errorf("the largest request has %d bytes", size)
	}
	c.start(away)
	c.judge()
}
