// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/ringside-io/ringside/appendlog"
)

// TestUnfitLeader: when the files of the leader fail, or hang, another node takes writes. The leader says so, and
// is fit again when they work.
//
// Promise: replica/unfit-leader
func TestUnfitLeader(t *testing.T) {
	type fault struct {
		sync  func(path string) error
		write func() error
		begin func(n *Node) error // and end
		end   func(n *Node) error
	}
	failing := func(errno error) fault {
		return fault{sync: func(string) error { return errno }, write: func() error { return errno }}
	}
	hang := make(chan struct{})
	away := func(n *Node) string { return n.catalog.data + ".away" }
	for name, f := range map[string]fault{
		"EIO": failing(syscall.EIO), "EROFS": failing(syscall.EROFS), "ENOSPC": failing(syscall.ENOSPC), "EDQUOT": failing(syscall.EDQUOT),
		"log": {write: func() error { return syscall.EIO }},
		"hang": {sync: func(string) error { <-hang; return nil }, write: func() error { <-hang; return nil },
			end: func(*Node) error { close(hang); return nil }},
		"no data": {begin: func(n *Node) error { return os.Rename(n.catalog.data, away(n)) }, end: func(n *Node) error { return os.Rename(away(n), n.catalog.data) }},
	} {
		t.Run(strings.ReplaceAll(name, " ", "-"), func(t *testing.T) {
			var faulty atomic.Pointer[string] // the directory whose files fail
			concerned := func(path string) bool {
				dir := faulty.Load()
				return dir != nil && strings.HasPrefix(path, *dir+"/")
			}
			c := newCluster(t, 3, Options{Election: 600 * time.Millisecond, hung: hungAfter, disk: disk{
				around: func(path string, sync func() error) error {
					if f.sync != nil && concerned(path) {
						if err := f.sync(path); err != nil {
							return err
						}
					}
					return sync()
				},
				written: func(g appendlog.SegmentInfo) error {
					if f.write != nil && concerned(g.Path) {
						return f.write()
					}
					return nil
				},
			}})
			c.commit("CREATE TABLE IF NOT EXISTS t(x)")
			c.judge()
			var leader, other *Node
			until(t, "a leader that stays for a commit", func() bool { // on a busy machine elections follow each other
				leader, other = c.commit("INSERT INTO t VALUES(0)"), c.followers()[0]
				return leader != other && leader.Ready() == nil
			})
			begin := time.Now()
			if f.sync != nil || f.write != nil {
				faulty.Store(&leader.opts.Dir)
			}
			if f.begin != nil {
				must(t, f.begin(leader))
			}
			ctx, cancel := contextFor(t)
			defer cancel()
			for limit, wrote := 500*time.Millisecond, false; !wrote; limit += limit / 4 { // a leader that hangs does not answer
				attempt, end := context.WithTimeout(ctx, limit)
				err := other.Do(attempt, "db", func(tx *sql.Tx) error {
					_, err := tx.ExecContext(attempt, "INSERT INTO t VALUES(1)")
					return err
				})
				end()
				if wrote = err == nil; !wrote && ctx.Err() != nil {
					t.Fatal(err)
				}
			}
			t.Logf("a write after %v", time.Since(begin))
			if name != "log" && (leader.Status().Unfit == "" || leader.Ready() == nil) {
				until(t, "the status says it", func() bool { return leader.Status().Unfit != "" && leader.Ready() != nil })
			}
			if leader.role.leader() != nil {
				t.Error("it still leads")
			}
			if f.end != nil {
				must(t, f.end(leader))
			}
			faulty.Store(nil)
			until(t, "it is fit again", func() bool { return leader.Status().Unfit == "" })
			c.judge()
		})
	}
}

// withheld is a network that does not bring a node entries.
type withheld struct {
	network
	from atomic.Pointer[string] // the ID of that node
}

func (n *withheld) concerns(id raft.ServerID) bool {
	from := n.from.Load()
	return from != nil && string(id) == *from
}

func (n *withheld) AppendEntries(id raft.ServerID, target raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if len(args.Entries) > 0 && n.concerns(id) {
		return errors.New("withheld")
	}
	return n.network.AppendEntries(id, target, args, resp)
}

// AppendEntriesPipeline makes raft use AppendEntries.
func (n *withheld) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

// TestUnfitInARow: the leader resigns, so does the one after it at once, and the third node cannot be elected, because it
// lacks an entry that the others have. Writes go on when one of the two works again, which its probe finds out: both are
// not kept from leading for Options.Election times unfitElections.
//
// Promise: replica/unfit-leader
func TestUnfitInARow(t *testing.T) {
	var mu sync.Mutex
	var networks []*withheld
	c := newCluster(t, 3, Options{Election: 600 * time.Millisecond, around: func(n network) network {
		mu.Lock()
		defer mu.Unlock()
		networks = append(networks, &withheld{network: n})
		return networks[len(networks)-1]
	}})
	withhold := func(id *string) {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range networks {
			n.from.Store(id)
		}
	}
	first, others := c.leader(), c.followers()
	second, third := others[0], others[1]
	execAll(t, open(t, first, "db"), "CREATE TABLE t(x)")
	c.judge()
	name := third.ID()
	withhold(&name)
	execAll(t, open(t, first, "db"), "INSERT INTO t VALUES(1)")
	first.fitness.fileFailed(syscall.EIO)
	until(t, "the second leads", func() bool { return second.role.leader() != nil })
	begin := time.Now()
	second.fitness.fileFailed(syscall.EROFS)
	until(t, "the second has resigned", func() bool { return second.raft.State() != raft.Leader })
	resigned := time.Since(begin)
	withhold(nil)
	ctx, cancel := contextFor(t)
	defer cancel()
	for {
		attempt, end := context.WithTimeout(ctx, 500*time.Millisecond)
		err := third.Do(attempt, "db", func(tx *sql.Tx) error {
			_, err := tx.ExecContext(attempt, "INSERT INTO t VALUES(2)")
			return err
		})
		end()
		if err == nil {
			break
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
	}
	t.Logf("resigned after %v, a write after %v", resigned, time.Since(begin))
	if n := c.leader(); n.fitness.why() != nil {
		t.Errorf("%s leads because time has passed: %v", n.ID(), n.fitness.why())
	}
	c.judge()
}

// TestSuspectedInVain: a failure that does not concern the directories changes nothing.
func TestSuspectedInVain(t *testing.T) {
	c := newCluster(t, 1, Options{})
	n := c.leader()
	execAll(t, open(t, n, "db"), "CREATE TABLE t(x)")
	for range 5 {
		n.fitness.suspect()
	}
	until(t, "it was tried", func() bool {
		n.fitness.mu.Lock()
		defer n.fitness.mu.Unlock()
		return !n.fitness.probing
	})
	if err := errors.Join(n.fitness.why(), n.Ready()); err != nil {
		t.Error(err)
	}
	left, err := filepath.Glob(filepath.Join(n.catalog.data, sealFile+".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %q, %v", left, err)
	}
	execAll(t, open(t, n, "db"), "INSERT INTO t VALUES(1)")
}

// TestProbeForEachReason: a node that becomes unfit after a probe has tried its directories, and before that probe has
// ended, is tried again.
//
// Promise: replica/unfit-leader
func TestProbeForEachReason(t *testing.T) {
	f := &newCluster(t, 1, Options{Election: 200 * time.Millisecond}).leader().fitness
	f.mu.Lock()
	f.probing = true // as in a probe
	f.mu.Unlock()
	if !f.recover() {
		t.Fatal("the probe does not end")
	}
	f.resign(syscall.EIO)
	f.suspect()
	until(t, "it is fit again", func() bool { return f.why() == nil })
}

// TestCloseEndsProbes: Close returns when no probe of the directories makes files any more.
func TestCloseEndsProbes(t *testing.T) {
	begun, end := make(chan struct{}), make(chan struct{})
	var once sync.Once
	var ended atomic.Bool
	c := newCluster(t, 1, Options{disk: disk{around: func(path string, sync func() error) error {
		if strings.HasSuffix(path, ".probe") {
			once.Do(func() { close(begun); <-end; ended.Store(true) })
		}
		return sync()
	}}})
	c.leader().fitness.suspect()
	<-begun
	time.AfterFunc(300*time.Millisecond, func() { close(end) })
	c.stop("a")
	if !ended.Load() {
		t.Error("Close returned while a probe had a file open")
	}
}
