// SPDX-License-Identifier: MIT

package replica

import (
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// Ready returns nil if this node serves: it has caught up since its start, knows a leader, and its disk works. It
// returns the reason otherwise. It asks no other node.
func (n *Node) Ready() error {
	if n.life.closing.Err() != nil {
		return fmt.Errorf("replica: %w", os.ErrClosed)
	}
	if err := n.fitness.why(); err != nil {
		return fmt.Errorf("replica: this node cannot lead: %w", err)
	}
	if !n.progress.recovered.Load() {
		return fmt.Errorf("replica: %w", errRecovering)
	}
	if _, id := n.raft.LeaderWithID(); id == "" {
		return &NotLeaderError{}
	}
	return nil
}

// Status is the state of a node.
type Status struct {
	ID, Address string
	Leader      string   // ID of the leader, "" if none is known
	Leads       bool     // this node is the leader and is ready to write
	Term        uint64   // raft's term
	Applied     uint64   // index of the last entry of raft's log that this node has applied
	LastEntry   uint64   // index of the last entry in that log
	LogBytes    int64    // size of that log in bytes
	Databases   int      // number of databases
	Broken      []string // names of the databases that this node does not serve, see [BrokenError]
	Members     []Member // members of the cluster, as this node knows them
	Cluster     string   // random identity of the cluster, in hexadecimal
	// Silence is for how long this node has heard nothing of the leader; 0 on the leader, negative if it never has.
	Silence time.Duration
	Unfit   string // why this node cannot lead, for example that its disk fails; "" if it can
}

// Status returns the state of this node.
func (n *Node) Status() Status {
	_, leader := n.raft.LeaderWithID()
	s := Status{ID: n.opts.ID, Address: n.Address(), Leader: string(leader), Leads: n.role.leader() != nil, Term: n.raft.CurrentTerm(),
		Applied: n.progress.applied.Load(), LastEntry: n.raft.LastIndex(), LogBytes: n.store.Bytes()}
	for _, db := range n.catalog.all() {
		s.Databases++
		db.mu.Lock()
		if db.broken != nil {
			s.Broken = append(s.Broken, db.name)
		}
		db.mu.Unlock()
	}
	slices.Sort(s.Broken)
	if last := n.raft.LastContact(); last.IsZero() && !s.Leads {
		s.Silence = -1
	} else if !s.Leads {
		s.Silence = time.Since(last)
	}
	if err := n.fitness.why(); err != nil {
		s.Unfit = err.Error()
	}
	n.membership.mu.RLock()
	s.Cluster = fmt.Sprintf("%016x", n.membership.cluster)
	n.membership.mu.RUnlock()
	if f := n.raft.GetConfiguration(); f.Error() == nil {
		for _, m := range f.Configuration().Servers {
			s.Members = append(s.Members, Member{string(m.ID), string(m.Address), m.Suffrage == raft.Voter, n.wire.version(m)})
		}
	}
	return s
}

// metrics counts events of a node.
type metrics struct {
	Commits, Applied, Entries, Verified, Forwarded, Broken, Redone, Fetched, Uncertain atomic.Uint64
}

// Stats counts what a node did since it was opened.
type Stats struct {
	Commits   uint64 `json:"commits"`   // transactions of connections of this node
	Applied   uint64 `json:"applied"`   // transactions of other nodes, written into files
	Entries   uint64 `json:"entries"`   // raft entries that this node proposed; each holds the commits that waited
	Verified  uint64 `json:"verified"`  // checks with a majority for linearizable reads
	Forwarded uint64 `json:"forwarded"` // statements that this node ran for others
	Broken    uint64 `json:"broken"`    // databases whose files differed or failed
	Redone    uint64 `json:"redone"`    // databases that were repaired from raft's log
	Fetched   uint64 `json:"fetched"`   // databases that were fetched from another node
	Uncertain uint64 `json:"uncertain"` // commits and other operations whose outcome was unknown to their callers
	Databases int    `json:"databases"` // databases of the cluster
	Unserved  int    `json:"unserved"`  // databases that this node does not serve until they are complete
}

// Stats returns the counters of the node. It may be called at any time, for example by a
// function that package expvar publishes.
func (n *Node) Stats() Stats {
	m := &n.metrics
	s := Stats{Commits: m.Commits.Load(), Applied: m.Applied.Load(), Entries: m.Entries.Load(), Verified: m.Verified.Load(),
		Forwarded: m.Forwarded.Load(), Broken: m.Broken.Load(), Redone: m.Redone.Load(), Fetched: m.Fetched.Load(), Uncertain: m.Uncertain.Load()}
	for _, db := range n.catalog.all() {
		s.Databases++
		db.mu.Lock()
		if db.broken != nil {
			s.Unserved++
		}
		db.mu.Unlock()
	}
	return s
}

// Plus returns the sum of the counters of two nodes.
func (s Stats) Plus(o Stats) Stats {
	s.Commits += o.Commits
	s.Applied += o.Applied
	s.Entries += o.Entries
	s.Verified += o.Verified
	s.Forwarded += o.Forwarded
	s.Broken += o.Broken
	s.Redone += o.Redone
	s.Fetched += o.Fetched
	s.Uncertain += o.Uncertain
	s.Databases += o.Databases
	s.Unserved += o.Unserved
	return s
}
