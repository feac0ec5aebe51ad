// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// sharedCheck runs a check for all callers that wait for one. A caller gets the result of a
// run that began after its call.
type sharedCheck struct {
	mu      sync.Mutex
	running bool
	next    *checkRun
}

type checkRun struct {
	done chan struct{}
	err  error
}

func (s *sharedCheck) do(check func() error) error {
	s.mu.Lock()
	if s.next == nil {
		s.next = &checkRun{done: make(chan struct{})}
	}
	r := s.next
	if !s.running {
		s.running = true
		go s.run(check)
	}
	s.mu.Unlock()
	<-r.done
	return r.err
}

func (s *sharedCheck) run(check func() error) {
	for {
		s.mu.Lock()
		r := s.next
		s.next = nil
		if r == nil {
			s.running = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		r.err = check()
		close(r.done)
	}
}

// verify checks that this node leads: its state then has all transactions that were
// acknowledged before the call.
func (n *Node) verify() error {
	if err := n.writable(); err != nil {
		return err
	}
	if n.bug == bugStaleRead {
		return nil
	}
	return n.verifying.do(func() error {
		l := n.leader()
		if l == nil {
			return n.notLeader()
		}
		n.metrics.Verified.Add(1)
		term, begin := n.raft.CurrentTerm(), time.Now()
		if err := n.raft.VerifyLeader().Error(); err != nil {
			return n.notLeader()
		}
		if !n.acceptedSince(term, begin) || n.leader() != l {
			return n.notLeader()
		}
		return nil
	})
}

// acceptedSince waits until a majority has accepted a request that this node sent as the
// leader of a term since a time. It returns false if this node leads no longer, or after twice
// the election timeout. VerifyLeader alone does not suffice: a reply that was on its way when
// the check began satisfies it, and another leader may have committed since that reply.
func (n *Node) acceptedSince(term uint64, begin time.Time) bool {
	end := time.NewTimer(2 * n.opts.Election)
	defer end.Stop()
	tick := time.NewTicker(max(n.opts.Election/20, time.Millisecond))
	defer tick.Stop()
	for {
		f := n.raft.GetConfiguration()
		if f.Error() != nil || n.raft.State() != raft.Leader || n.raft.CurrentTerm() != term {
			return false
		}
		ok, changed := n.accepted.majority(f.Configuration().Servers, raft.ServerID(n.opts.ID), term, begin)
		if ok {
			return true
		}
		select {
		case <-changed:
		case <-tick.C:
		case <-end.C:
			return false
		case <-n.closing.Done():
			return false
		}
	}
}

// ErrStale is returned for a read whose bound cannot be met: the leader cannot be reached, or
// this node is behind.
var ErrStale = errors.New("replica: this node may be further behind than Stale allows")

// readSync is a moment at which this node had all entries that were committed before it.
type readSync struct {
	at    time.Time
	index uint64
}

// fresh ensures that this node is no further behind than a bound.
func (n *Node) fresh(bound time.Duration) error {
	if bound < 0 || n.leader() != nil && n.verify() == nil {
		return nil
	}
	if s := n.lastSync.Load(); s != nil && time.Since(s.at) <= bound {
		return nil
	}
	err := n.reading.do(n.syncRead)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// syncRead asks the leader for the last committed entry, and waits until this node has it.
func (n *Node) syncRead() error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(n.closing, max(2*n.opts.Election, time.Second))
	defer cancel()
	address, id := n.raft.LeaderWithID()
	if id == "" {
		return n.notLeader()
	}
	if string(id) == n.opts.ID {
		return n.verify()
	}
	a, err := n.wire.ask(ctx, string(address), request{Kind: askIndex})
	if err != nil {
		return err
	}
	if err := n.Wait(ctx, Position{Index: a.Index}); err != nil {
		return err
	}
	n.lastSync.Store(&readSync{begin, a.Index})
	n.recover()
	return nil
}

// catchUp waits until this node has caught up after its start, and records it.
func (n *Node) catchUp() {
	for wait := 10 * time.Millisecond; !n.recovered.Load(); wait = min(2*wait, time.Second) {
		if n.reading.do(n.syncRead) == nil {
			continue
		}
		select {
		case <-n.closing.Done():
			return
		case <-time.After(wait):
		}
	}
}

// WaitReady waits until this node has all commits from before its start.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !n.recovered.Load() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("replica: %w: %w", errRecovering, ctx.Err())
		case <-n.closing.Done():
			return net.ErrClosed
		}
	}
	return nil
}

// metrics counts events of a node.
type metrics struct {
	Commits, Applied, Entries, Verified, Forwarded, Broken, Redone, Fetched atomic.Uint64
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
	Databases int    `json:"databases"` // databases of the cluster
	Unserved  int    `json:"unserved"`  // databases that this node does not serve until they are complete
}

// Stats returns the counters of the node. It may be called at any time, for example by a
// function that package expvar publishes.
func (n *Node) Stats() Stats {
	m := &n.metrics
	s := Stats{Commits: m.Commits.Load(), Applied: m.Applied.Load(), Entries: m.Entries.Load(), Verified: m.Verified.Load(),
		Forwarded: m.Forwarded.Load(), Broken: m.Broken.Load(), Redone: m.Redone.Load(), Fetched: m.Fetched.Load()}
	for _, db := range n.databases() {
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
	s.Databases += o.Databases
	s.Unserved += o.Unserved
	return s
}
