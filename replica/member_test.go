// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"
)

// lag lets heartbeats through to a node, or to all, and no entries or snapshots.
type lag struct {
	mu  sync.Mutex
	to  raft.ServerAddress // "" means none
	all bool
}

func (l *lag) set(address string, all bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.to, l.all = raft.ServerAddress(address), all
}

func (l *lag) lost(target raft.ServerAddress, entries int) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if (l.all || target == l.to) && entries > 0 {
		return errors.New("lost by the test")
	}
	return nil
}

func (l *lag) around(n network) network { return lagging{n, l} }

type lagging struct {
	network
	l *lag
}

func (n lagging) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := n.l.lost(target, len(args.Entries)); err != nil {
		return err
	}
	return n.network.AppendEntries(id, target, args, resp)
}

func (n lagging) InstallSnapshot(id raft.ServerID, target raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := n.l.lost(target, 1); err != nil {
		return err
	}
	return n.network.InstallSnapshot(id, target, args, resp, data)
}

func (n lagging) AppendEntriesPipeline(id raft.ServerID, target raft.ServerAddress) (raft.AppendPipeline, error) {
	p, err := n.network.AppendEntriesPipeline(id, target)
	return laggingPipeline{p, n.l, target}, err
}

type laggingPipeline struct {
	raft.AppendPipeline
	l      *lag
	target raft.ServerAddress
}

func (p laggingPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.l.lost(p.target, len(args.Entries)); err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// newcomer starts a node that is no member yet.
func (c *cluster) newcomer(id string) *Node {
	c.t.Helper()
	c.addrs[id] = freeAddress(c.t)
	o := c.options(id)
	o.Peers, o.Forward = nil, true
	n, err := Open(o)
	must(c.t, err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = n
	return n
}

// standing returns whether a node is a member, and whether it votes, as another node knows it.
func standing(n *Node, id string) (member, voter bool) {
	for _, m := range n.Status().Members {
		if m.ID == id {
			return true, m.Voter
		}
	}
	return false, false
}

// adding starts AddMember, and returns when the node is a member that does not vote.
func adding(ctx context.Context, t *testing.T, leader, n *Node) (done chan error) {
	t.Helper()
	done = make(chan error, 1)
	go func() { done <- leader.AddMember(ctx, n.ID(), n.Address()) }()
	until(t, "the node is a member and does not vote", func() bool {
		member, voter := standing(leader, n.ID())
		return member && !voter
	})
	return done
}

// TestMemberWithoutVote: a node that is added counts for nothing before it has caught up. With one of
// three members stopped, the other two still commit. Reading, forwarding, Verify and Backup work on it.
func TestMemberWithoutVote(t *testing.T) {
	l := new(lag)
	c := newCluster(t, 3, Options{around: l.around})
	leader := c.leader()
	db := open(t, leader, "db")
	execAll(t, db, "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	stopped := c.followers()[0].ID()
	d := c.newcomer("d")
	l.set(d.Address(), false)
	c.stop(stopped)
	ctx, cancel := contextFor(t)
	defer cancel()
	begun, end := context.WithCancel(ctx)
	done := adding(begun, t, leader, d)

	execAll(t, db, "INSERT INTO t VALUES(2)")
	if got := value(t, db, "SELECT count(*) FROM t"); got != "2" {
		t.Errorf("%s rows", got)
	}
	until(t, "the node knows the leader", func() bool { return d.Status().Leader == leader.ID() })
	err := d.Do(ctx, "db", func(tx *sql.Tx) error {
		_, err := tx.Exec("INSERT INTO t VALUES(3)")
		return err
	})
	must(t, err)
	soon, over := context.WithTimeout(ctx, 200*time.Millisecond)
	defer over()
	if err := leader.Verify(soon); err == nil || errors.Is(err, ErrDiffer) {
		t.Errorf("Verify with a member that lacks everything: %v", err)
	}
	if err := d.Backup(soon, filepath.Join(t.TempDir(), "backup")); err == nil {
		t.Error("a member that lacks everything made a backup")
	}
	if err := leader.Transfer(ctx, "d"); err == nil {
		t.Error("the leadership was transferred to a member that does not vote")
	}
	end()
	if err := <-done; !errors.Is(err, context.Canceled) || errors.Is(err, ErrUncertain) {
		t.Errorf("AddMember that was ended: %v", err)
	}

	// It goes on to catch up, and still does not vote.
	l.set("", false)
	until(t, "the node has caught up", func() bool { return d.progress.recovered.Load() && len(d.List()) == 1 })
	if got := value(t, open(t, d, "db", Stale(0)), "SELECT count(*) FROM t"); got != "3" {
		t.Errorf("%s rows", got)
	}
	execAll(t, open(t, d, "db"), "INSERT INTO t VALUES(4)") // forwarded
	must(t, d.Backup(ctx, filepath.Join(t.TempDir(), "backup")))
	if member, voter := standing(d, "d"); !member || voter {
		t.Errorf("it is a member: %v, and votes: %v", member, voter)
	}
	must(t, leader.AddMember(ctx, "d", d.Address()))
	if _, voter := standing(leader, "d"); !voter {
		t.Error("it does not vote after it has caught up")
	}
	c.start(stopped)
	c.judge()
	c.stop(leader.ID())
	execAll(t, open(t, c.leader(), "db"), "INSERT INTO t VALUES(5)") // three of four
}

// TestAddMemberInterrupted: the leadership ends, or the member is removed, while a node catches up.
func TestAddMemberInterrupted(t *testing.T) {
	l := new(lag)
	c := newCluster(t, 3, Options{around: l.around})
	leader := c.leader()
	execAll(t, open(t, leader, "db"), "CREATE TABLE t(x)", "INSERT INTO t VALUES(1)")
	d := c.newcomer("d")
	l.set(d.Address(), false)
	ctx, cancel := contextFor(t)
	defer cancel()

	done := adding(ctx, t, leader, d)
	must(t, leader.RemoveMember(ctx, "d"))
	if err := <-done; err == nil || ctx.Err() != nil {
		t.Errorf("AddMember of a member that was removed: %v", err)
	}
	if member, _ := standing(leader, "d"); member {
		t.Error("a member that was removed was added again")
	}

	done = adding(ctx, t, leader, d)
	var next *Node
	until(t, "another leader", func() bool {
		_ = leader.Transfer(ctx, "")
		next = c.leader()
		return next != leader
	})
	err := <-done
	if _, ok := errors.AsType[*NotLeaderError](err); !ok {
		t.Errorf("AddMember on a node that does not lead any more: %v", err)
	}
	if member, voter := standing(next, "d"); !member || voter {
		t.Errorf("it is a member: %v, and votes: %v", member, voter)
	}
	l.set("", false)
	must(t, next.AddMember(ctx, "d", d.Address()))
	if _, voter := standing(next, "d"); !voter {
		t.Error("it does not vote after the second call")
	}
	c.judge()
}
