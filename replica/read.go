// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// sharedCheck runs a check for all callers that wait for one. A caller gets the result of a
// run that began after its call, or the error of its context.
type sharedCheck struct {
	mu      sync.Mutex
	running bool
	next    *checkRun
}

type checkRun struct {
	done chan struct{}
	err  error
}

func (s *sharedCheck) do(ctx context.Context, check func() error) error {
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
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		return reason(ctx)
	}
}

func (s *sharedCheck) run(check func() error) {
	for {
		// The callers of the last run, and others that are ready to run, come first: they may call
		// again, and then share the next run.
		runtime.Gosched()
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
func (n *Node) verify(ctx context.Context) error {
	if err := n.writable(); err != nil {
		return err
	}
	if n.bug == bugStaleRead {
		return nil
	}
	return n.verifying.do(ctx, func() error {
		l := n.leader()
		if l == nil {
			return n.notLeader()
		}
		n.metrics.Verified.Add(1)
		if !n.confirm(l) || n.leader() != l {
			return n.notLeader()
		}
		return nil
	})
}

// confirm asks the voters for their current terms, and reports whether a majority, with this
// node, has that of a leadership. A voter stores a later term durably before it votes in it, and
// does not go back, so no later leader was elected before confirm was called. It returns false if
// this node leads no longer, or after twice the election timeout.
func (n *Node) confirm(l *leadership) bool {
	until := time.Now().Add(2 * n.opts.Election)
	for {
		confirmed, deposed := n.confirmOnce(l, until)
		if confirmed || deposed {
			return confirmed
		}
		select {
		case <-time.After(max(n.opts.Election/20, time.Millisecond)):
		case <-n.closing.Done():
			return false
		}
		if n.leader() != l || time.Now().After(until) {
			return false
		}
	}
}

// confirmOnce asks as many voters as are needed, and the others if one of them fails, has
// another term, or does not answer soon. It reports whether a majority has the term of the
// leadership, and whether a voter has a later one.
func (n *Node) confirmOnce(l *leadership, until time.Time) (confirmed, deposed bool) {
	f := n.raft.GetConfiguration()
	if f.Error() != nil {
		return false, false
	}
	var voters []raft.Server // without this node
	all, need := 0, 0
	for _, m := range f.Configuration().Servers {
		if m.Suffrage != raft.Voter {
			continue
		}
		all++
		if string(m.ID) == n.opts.ID {
			need--
		} else {
			voters = append(voters, m)
		}
	}
	if need += all/2 + 1; need == 0 || need > len(voters) {
		return need == 0, false
	}
	if late := n.late.Load(); late != nil && voters[0].ID == *late {
		voters = append(voters[1:], voters[0])
	}
	type reply struct {
		from int
		term uint64 // 0: none
	}
	replies, replied := make(chan reply, len(voters)), make([]bool, len(voters))
	asked, open := 0, 0
	ask := func(count int) {
		for ; asked < count; asked++ {
			from := asked
			open++
			go func() {
				term, err := n.members.MemberTerm(voters[from].ID, voters[from].Address, until)
				if err != nil {
					term = 0
				}
				replies <- reply{from, term}
			}()
		}
	}
	ask(need)
	soon := time.NewTimer(max(n.opts.Election/50, time.Millisecond))
	defer soon.Stop()
	for need > 0 && open > 0 {
		select {
		case r := <-replies:
			open--
			replied[r.from] = true
			if r.term > l.term {
				return false, true
			}
			if r.term == l.term {
				need--
				continue
			}
			n.late.Store(&voters[r.from].ID)
		case <-soon.C:
			n.late.Store(&voters[slices.Index(replied, false)].ID)
		case <-n.closing.Done():
			return false, false
		}
		ask(len(voters))
	}
	return need == 0, false
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
func (n *Node) fresh(ctx context.Context, bound time.Duration) error {
	if bound < 0 || n.leader() != nil && n.verify(ctx) == nil {
		return nil
	}
	if s := n.lastSync.Load(); s != nil && time.Since(s.at) <= bound {
		return nil
	}
	err := n.reading.do(ctx, n.syncRead)
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
		return n.verify(ctx)
	}
	a, err := n.wire.ask(ctx, peer{string(id), string(address)}, request{Kind: askIndex})
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
		if n.reading.do(n.closing, n.syncRead) == nil {
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
	s.Uncertain += o.Uncertain
	s.Databases += o.Databases
	s.Unserved += o.Unserved
	return s
}
