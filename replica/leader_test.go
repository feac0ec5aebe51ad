// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"
)

// operations returns those of an entry of raft's log.
func operations(t *testing.T, n *Node, index uint64) (all []op) {
	t.Helper()
	var l raft.Log
	must(t, n.store.GetLog(index, &l))
	for data := l.Data; l.Type == raft.LogCommand && len(data) > 0; {
		o, tail, err := nextOp(data)
		must(t, err)
		all, data = append(all, o), tail
	}
	return all
}

// entryOf returns the index of the entry with an operation.
func entryOf(t *testing.T, n *Node, id proposalID) uint64 {
	t.Helper()
	last, err := n.store.LastIndex()
	must(t, err)
	for i := uint64(1); i <= last; i++ {
		if slices.ContainsFunc(operations(t, n, i), func(o op) bool { return o.id == id }) {
			return i
		}
	}
	t.Fatal("the operation is not in raft's log")
	return 0
}

// TestIndexOfAcknowledged: an operation is acknowledged while later ones of its entry are being applied. A
// node that asks the leader what it must have applied gets that entry.
// Promise: replica/what-leader-answers
func TestIndexOfAcknowledged(t *testing.T) {
	gate := make(chan struct{})
	var blocked atomic.Pointer[string]
	around := func(path string, sync func() error) error {
		if b := blocked.Load(); b != nil && path == *b {
			<-gate
		}
		return sync()
	}
	c := newCluster(t, 3, Options{disk: disk{around: around}})
	defer close(gate)
	leader, follower := c.leader(), c.followers()[0]
	path := filepath.Join(leader.catalog.data, "second.new")
	blocked.Store(&path)
	first, second := createOp(t, leader, "first"), createOp(t, leader, "second")
	leader.raft.Apply(append(first.op, second.op...), 0)
	must(t, <-first.done)
	index := entryOf(t, leader, first.id)
	ctx, cancel := contextFor(t)
	defer cancel()
	a, err := follower.wire.ask(ctx, peer{leader.ID(), leader.Address()}, request{Kind: askIndex})
	must(t, err)
	if a.Index < index {
		t.Errorf("entry %d was acknowledged, and the leader asks others to apply the entries up to %d", index, a.Index)
	}
}

// stuckTransfer is a network in which a transfer of the leadership from one node takes for ever.
type stuckTransfer struct {
	network
	from *atomic.Pointer[string]
	gate chan struct{}
}

func (n stuckTransfer) TimeoutNow(id raft.ServerID, target raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if from := n.from.Load(); from != nil && *from == string(n.LocalAddr()) {
		<-n.gate
		return errors.New("lost by the test")
	}
	return n.network.TimeoutNow(id, target, args, resp)
}

// TestTransferDuringElection: a node that has been elected while it transfers the leadership, which fails,
// becomes ready.
func TestTransferDuringElection(t *testing.T) {
	var from atomic.Pointer[string]
	gate := make(chan struct{})
	c := newCluster(t, 3, Options{around: func(n network) network { return stuckTransfer{n, &from, gate} }})
	var once sync.Once
	lost := func() { once.Do(func() { close(gate) }) }
	defer lost()
	old, next := c.leader(), c.followers()[0]
	address := next.Address()
	next.sessions.mu.Lock() // it cannot become ready
	must(t, old.raft.LeadershipTransferToServer(raft.ServerID(next.ID()), raft.ServerAddress(address)).Error())
	until(t, "the node is elected", func() bool { return next.raft.State() == raft.Leader })
	from.Store(&address)
	transfer := next.raft.LeadershipTransfer()
	until(t, "the transfer has begun", func() bool {
		return errors.Is(next.raft.Barrier(0).Error(), raft.ErrLeadershipTransferInProgress) || next.raft.State() != raft.Leader
	})
	next.sessions.mu.Unlock()
	t.Log("the transfer:", transfer.Error())
	lost()
	until(t, "a leader is ready", func() bool {
		for _, n := range c.all() {
			if n.role.leader() != nil {
				return true
			}
		}
		return false
	})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
}

// TestLeaderWaitsForWriters: a node that leads again answers no read before the calls of its earlier
// writers have ended: one may still have to write a commit that others have seen meanwhile.
// Promise: replica/what-leader-answers
func TestLeaderWaitsForWriters(t *testing.T) {
	c := newCluster(t, 3, Options{})
	n := c.leader()
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
	n.sessions.mu.Lock()
	var k *conn
	for k = range n.sessions.conns {
	}
	n.sessions.mu.Unlock()
	k.mu.Lock() // a call that the disk delays
	must(t, n.Transfer(t.Context(), ""))
	until(t, "the node is elected again", func() bool {
		for _, other := range c.all() {
			if other != n && other.role.leader() != nil {
				_ = other.Transfer(t.Context(), n.ID())
			}
		}
		return n.raft.State() == raft.Leader
	})
	for range 50 {
		_ = n.raft.Barrier(0).Error()
		if n.role.leader() != nil {
			t.Error("the node answers reads while a writer of an earlier term is in a call")
			break
		}
	}
	k.mu.Unlock()
	c.leader()
}

// refused is a future of an entry that raft refuses.
type refused struct{ raft.ApplyFuture }

func (refused) Error() error { return raft.ErrNotLeader }

// TestOperationsOfAnEntry: the number of an operation within its entry has 12 bits in the identities of
// databases.
func TestOperationsOfAnEntry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{opts: Options{flight: 1 << 30, stall: time.Hour, MaxTransaction: 1 << 20}}
		closing, end := context.WithCancel(t.Context())
		defer end()
		n.life.closing = closing
		n.proposer.open(n)
		n.proposer.outcome = func(err error) error { return err }
		gate, entries := make(chan struct{}), make(chan []byte, 16)
		n.proposer.apply = func(entry []byte, _ time.Duration) raft.ApplyFuture {
			<-gate
			entries <- entry
			return refused{}
		}
		go n.proposer.loop()
		const total = 9000
		var over sync.WaitGroup
		defer over.Wait()
		for range total {
			over.Go(func() {
				if err := n.proposer.commit(t.Context(), opDelete, make([]byte, 8)); !errors.Is(err, raft.ErrNotLeader) {
					t.Error(err)
				}
			})
		}
		synctest.Wait() // all operations wait for the first entry
		close(gate)
		for most, rest := 0, total; rest > 0; {
			ops := 0
			for data := <-entries; len(data) > 0; ops++ {
				_, tail, err := nextOp(data)
				must(t, err)
				data = tail
			}
			if ops >= 1<<12 {
				t.Errorf("an entry has %d operations", ops)
			}
			if most, rest = max(most, ops), rest-ops; rest == 0 && most < 1<<11 {
				t.Errorf("the largest entry has %d operations of %d that waited", most, total)
			}
		}
	})
}

// TestProposeAfterClose: a call that was late for Close gets an error.
// Promise: replica/calls-beside-close
func TestProposeAfterClose(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	c.stop("a")
	for range 64 {
		done := make(chan error, 1)
		go func() { done <- n.proposer.commit(context.Background(), opDelete, make([]byte, 8)) }()
		select {
		case err := <-done:
			if !errors.Is(err, net.ErrClosed) {
				t.Fatal(err)
			}
		case <-time.After(patience):
			t.Fatal("the call does not return")
		}
	}
}

// unanswered is a future whose result comes when the channel is closed.
type unanswered chan struct{}

func (f unanswered) Error() error {
	<-f
	return nil
}

// TestCloseWithUnansweredFuture: Close ends waits for results that raft, which drops committed entries when
// it is shut down, never has.
// Promise: replica/calls-beside-close
func TestCloseWithUnansweredFuture(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	f, began := make(unanswered), make(chan struct{})
	defer close(f)
	waits := []func() error{
		func() error { return n.role.answer(f) },
		func() error {
			return n.change(context.Background(), func(time.Duration) raft.Future {
				close(began)
				return f
			})
		},
	}
	results := make(chan error)
	for _, wait := range waits {
		n.life.over.Go(func() { results <- wait() })
	}
	<-began
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.stop("a")
	}()
	for range waits {
		select {
		case err := <-results:
			if !errors.Is(err, raft.ErrRaftShutdown) {
				t.Error(err)
			}
		case <-time.After(patience):
			t.Fatal("a wait does not end with Close")
		}
	}
	<-done
}

// TestCloseBesideCalls closes nodes while other goroutines use them in all ways. Close returns, and so do
// the calls.
// Promise: replica/calls-beside-close
func TestCloseBesideCalls(t *testing.T) {
	c := newCluster(t, 3, Options{Election: 400 * time.Millisecond, Forward: true, Logger: slog.New(slog.DiscardHandler)})
	ctx, cancel := contextFor(t)
	defer cancel()
	c.leader()
	dir := t.TempDir()
	var calls atomic.Int64
	var over sync.WaitGroup
	use := func(n *Node, worker int) {
		db, stale := open(t, n, "db"), open(t, n, "db", Stale(-1))
		for i := worker; n.life.closing.Err() == nil; i++ {
			short, stop := context.WithTimeout(ctx, time.Duration(i%100)*time.Millisecond)
			switch i % 7 {
			case 0:
				_ = n.Do(ctx, "db", func(tx *sql.Tx) error {
					_, err := tx.Exec("CREATE TABLE IF NOT EXISTS t(x); INSERT INTO t VALUES(1)")
					return err
				})
			case 1:
				_, _ = db.ExecContext(short, "INSERT INTO t VALUES(2)")
			case 2:
				_ = stale.QueryRowContext(ctx, "SELECT count(*) FROM t").Scan(new(int))
			case 3:
				if tx, err := db.BeginTx(ctx, nil); err == nil {
					if rows, err := tx.Query("SELECT x FROM t"); err == nil {
						rows.Next()
						_, _ = tx.Exec("INSERT INTO t VALUES(3)")
						_ = rows.Close()
					}
					_ = tx.Commit()
				}
			case 4:
				_ = errors.Join(n.Verify(short), n.Backup(ctx, filepath.Join(dir, fmt.Sprint(n.ID(), worker, i))))
			case 5:
				name := fmt.Sprint("other", worker)
				_ = errors.Join(n.Create(ctx, name, CreateOptions{}), n.Delete(ctx, name))
			case 6:
				_ = n.Transfer(short, "")
			}
			n.Status()
			calls.Add(1)
			stop()
		}
	}
	for _, n := range c.all() {
		for worker := range 4 {
			over.Go(func() { use(n, worker) })
		}
	}
	until(t, "the nodes are used", func() bool { return calls.Load() > 200 })
	done := make(chan struct{})
	go func() {
		defer close(done)
		for id := range c.addrs {
			c.stop(id)
		}
		over.Wait()
	}()
	select {
	case <-done:
	case <-time.After(patience):
		stacks := make([]byte, 1<<20)
		t.Fatalf("Close or a call does not return\n%s", stacks[:runtime.Stack(stacks, true)])
	}
}
