// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// TestSeededBugs seeds a bug in all nodes. The checks of TestChaos, or the checksums of the
// nodes themselves, must find each of them.
// Promise: replica/tests-find-bug
func TestSeededBugs(t *testing.T) {
	for name, p := range map[string]testBug{"acknowledge before a majority": bugEarlyAck, "skip an entry": bugSkipEntry, "apply twice": bugApplyTwice} {
		t.Run(name, func(t *testing.T) {
			c := seededCluster(t, 3, Options{}, p)
			acked := 0
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(x)")
			if p == bugEarlyAck {
				followers := c.followers()
				for _, n := range followers {
					until(t, "the table", func() bool { // it was acknowledged early, too
						pos, err := n.Position("db")
						return err == nil && pos.Seq > 0
					})
				}
				for _, n := range followers {
					c.stop(n.ID())
				}
			}
			for i := range 30 {
				if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES(?)", i); err != nil {
					break
				}
				acked++
			}
			switch p {
			case bugEarlyAck:
				// Acknowledged without a majority: the other nodes never get it.
				c.stop(leader.ID())
				for id := range c.addrs {
					if id != leader.ID() {
						c.start(id)
					}
				}
				if got := value(t, open(t, c.leader(), "db"), "SELECT count(*) FROM t"); acked > 0 && got != fmt.Sprint(acked) {
					return // commits are missing, as the check of histories finds
				}
			default:
				for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
					for _, n := range c.all() {
						if n.metrics.Broken.Load() > 0 {
							return // a node found that its pages differ
						}
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					err := c.leader().Verify(ctx)
					cancel()
					if err != nil {
						return
					}
					if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES(1)"); err != nil {
						return
					}
				}
			}
			t.Errorf("nothing was found after %d commits", acked)
		})
	}
}

// TestDeposedLeaderReads: a deposed leader that does not ask the other nodes returns
// outdated data. The same read without the bug is refused.
// Promise: replica/linearizable-read-confirmed
// Promise: replica/tests-find-bug
func TestDeposedLeaderReads(t *testing.T) {
	for _, p := range []testBug{bugStaleRead, noBug} {
		t.Run(fmt.Sprint(p), func(t *testing.T) {
			c := seededCluster(t, 3, Options{}, p)
			leader := c.leader()
			db := open(t, leader, "db")
			execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES('old')")
			stale := leader.role.leading.Load()
			must(t, leader.Transfer(t.Context(), ""))
			until(t, "another leader", func() bool {
				for _, n := range c.all() {
					if n != leader && n.role.leading.Load() != nil && n.role.writable() == nil {
						_, err := open(t, n, "db").ExecContext(t.Context(), "UPDATE t SET x='new'")
						return err == nil
					}
				}
				return false
			})
			leader.role.leading.Store(stale) // it has not heard of its successor yet
			err := leader.reads.confirmLeads(t.Context())
			if (err == nil) != (p == bugStaleRead) {
				t.Errorf("a read on the deposed leader: %v", err)
			}
			leader.role.leading.Store(nil)
		})
	}
}

// TestOldRepliesDoNotVerify: replies to requests from before a read do not show that this
// node still led when the read began.
// Promise: replica/linearizable-read-confirmed
func TestOldRepliesDoNotVerify(t *testing.T) {
	d := new(delayer)
	c := newCluster(t, 3, Options{around: d.around})
	execAll(t, open(t, c.leader(), "db"), "CREATE TABLE t(x)")
	until(t, "a check was under way while the leader led", func() bool {
		defer d.pass() // a node does not close while its replies are held back
		leader := c.leader()
		d.hold()
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- leader.reads.confirmLeads(t.Context()) }()
		for !d.heldTerm() {
			if leader.role.leader() == nil {
				return false // held back for too long on a slow machine
			}
			time.Sleep(time.Millisecond)
		}
		d.lose() // no request that is sent from now on arrives
		go func() { second <- leader.reads.confirmLeads(t.Context()) }()
		for waits := false; !waits; {
			if leader.role.leader() == nil {
				return false
			}
			time.Sleep(time.Millisecond)
			leader.reads.verifying.mu.Lock()
			waits = leader.reads.verifying.next != nil
			leader.reads.verifying.mu.Unlock()
			select {
			case err := <-second:
				if err == nil {
					t.Fatal("a read was verified without a check")
				}
				return false
			default:
			}
		}
		d.release()
		t.Log("the first check:", <-first)
		if err := <-second; err == nil {
			t.Error("a read was verified by replies to requests from before it")
		}
		return true
	})
	must(t, c.leader().reads.confirmLeads(t.Context()))
}

// deaf is a network in which nothing is sent to one member while it is cut off.
type deaf struct {
	network
	id     raft.ServerID
	cutOff *atomic.Bool
}

func (n deaf) try(id raft.ServerID, send func() error) error {
	if id == n.id && n.cutOff.Load() {
		return errors.New("lost by the test")
	}
	return send()
}

func (n deaf) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return n.try(id, func() error { return n.network.AppendEntries(id, target, args, resp) })
}

func (n deaf) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (n deaf) RequestVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return n.try(id, func() error { return n.network.RequestVote(id, target, args, resp) })
}

func (n deaf) RequestPreVote(id raft.ServerID, target raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return n.try(id, func() error { return n.network.RequestPreVote(id, target, args, resp) })
}

// deposable is a cluster of three whose node a leads, and can be deposed without noticing it.
type deposable struct {
	*cluster
	a      *Node
	db     *sql.DB  // on a: t(x) with the row 'old'
	d      *delayer // of what a sends
	cutOff atomic.Bool
}

func newDeposable(t *testing.T) *deposable {
	t.Helper()
	c := new(deposable)
	c.cluster = newCluster(t, 3, Options{Election: 2 * time.Second, around: func(n network) network { return deaf{n, "a", &c.cutOff} }})
	c.judge()
	c.stop("a")
	c.d = &delayer{only: c.addrs["a"]}
	usual := c.base
	c.base.Election, c.base.around = 12*time.Second, c.d.around // it steps down later than the others elect another leader
	c.a = c.start("a")
	c.base = usual
	t.Cleanup(c.d.pass)
	until(t, "the node leads and has nothing to catch up", func() bool {
		if c.a.role.leader() != nil && c.a.reads.confirmLeads(t.Context()) == nil {
			return true
		}
		_ = c.leader().Transfer(t.Context(), "a")
		return false
	})
	c.db = open(t, c.a, "db")
	execAll(t, c.db, "CREATE TABLE t(x)", "INSERT INTO t VALUES('old')")
	return c
}

// cut loses what a sends and what is sent to it from now on.
func (c *deposable) cut() {
	c.d.lose()
	c.cutOff.Store(true)
}

// awaitSuccessor waits until another leader has changed the row to 'new'.
func (c *deposable) awaitSuccessor() {
	c.t.Helper()
	until(c.t, "another leader has committed", func() bool {
		for _, id := range []string{"b", "c"} {
			if n := c.node(id); n.role.leader() != nil {
				_, err := open(c.t, n, "db").ExecContext(c.t.Context(), "UPDATE t SET x='new'")
				return err == nil
			}
		}
		return false
	})
	c.noteRole()
}

// noteRole notes that a has stepped down already, on a slow machine: the test shows less then.
func (c *deposable) noteRole() {
	c.t.Helper()
	if c.a.raft.State() != raft.Leader {
		c.t.Log("the old leader has stepped down already: the test shows less")
	}
}

// heal lets everything through again and compares the nodes.
func (c *deposable) heal() {
	c.t.Helper()
	c.d.pass()
	c.cutOff.Store(false)
	c.judge()
}

// TestDeposedLeaderDoesNotAnswer: a leader whose messages are held back is deposed without knowing it,
// and another leader commits. A read on the old leader that began before must not return the
// old value, although replies from before the read satisfy raft's VerifyLeader.
// Promise: replica/linearizable-read-confirmed
func TestDeposedLeaderDoesNotAnswer(t *testing.T) {
	c := newDeposable(t)
	a, d := c.a, c.d
	d.hold()
	until(t, "replies of both members", func() bool { return d.held() == 2 })
	c.cut()
	before := a.metrics.Verified.Load()
	type result struct {
		value string
		err   error
	}
	read := make(chan result, 1)
	go func() {
		var r result
		r.err = c.db.QueryRowContext(t.Context(), "SELECT x FROM t").Scan(&r.value)
		read <- r
	}()
	until(t, "the read has begun", func() bool { return a.metrics.Verified.Load() > before })
	c.awaitSuccessor()
	own := a.raft.VerifyLeader()
	d.release()
	t.Log("VerifyLeader:", own.Error())
	d.ask() // the members answer with their terms; a hears nothing else of its successor
	if r := <-read; r.err == nil && r.value != "new" {
		t.Errorf("the deposed leader has answered %q", r.value)
	} else {
		t.Log(r.value, r.err)
	}
	c.noteRole()
	c.heal()
}

// TestRefusedFramesAreNoticed: frames of a refused commit that reach the file are noticed.
// Promise: replica/tests-find-bug
func TestRefusedFramesAreNoticed(t *testing.T) {
	c := seededCluster(t, 3, Options{Election: 3 * time.Second}, bugApplyRefused)
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	ids := c.followers()
	for _, n := range ids {
		c.stop(n.ID())
	}
	if _, err := db.ExecContext(t.Context(), "INSERT INTO t VALUES(2)"); err == nil {
		t.Fatal("a commit without a majority")
	}
	name := leader.ID()
	c.stop(name)
	for _, n := range ids {
		c.start(n.ID())
	}
	next := c.leader()
	execAll(t, open(t, next, "db"), "INSERT INTO t VALUES(3)")
	n := c.start(name)
	until(t, "the node has noticed the frames", func() bool {
		d, err := n.catalog.named("db")
		if err != nil {
			return false
		}
		_, _ = d.usable()
		return n.metrics.Broken.Load() > 0 || n.progress.recovered.Load() && n.metrics.Fetched.Load() > 0
	})
}
