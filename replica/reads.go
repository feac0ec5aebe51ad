// SPDX-License-Identifier: MIT

package replica

import (
	"context"
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

// reads are the checks that reads wait for.
type reads struct {
	node      *Node
	verifying sharedCheck
	reading   sharedCheck
	late      atomic.Pointer[raft.ServerID] // the member that was last asked for its term and did not answer soon
	lastSync  atomic.Pointer[readSync]
	members   network
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

// confirmLeads checks that this node leads: its state then has all transactions that were
// acknowledged before the call.
func (rs *reads) confirmLeads(ctx context.Context) error {
	if err := rs.node.role.writable(); err != nil {
		return err
	}
	if bug := rs.node.opts.bug; bug != nil && bug.trustsItself() {
		return nil
	}
	return rs.verifying.do(ctx, func() error {
		l := rs.node.role.leader()
		if l == nil {
			return rs.node.role.notLeader()
		}
		rs.node.metrics.Verified.Add(1)
		if !rs.confirm(l) || rs.node.role.leader() != l {
			return rs.node.role.notLeader()
		}
		return nil
	})
}

// confirm asks the voters for their current terms, and reports whether a majority, with this
// node, has that of a leadership. A voter stores a later term durably before it votes in it, and
// does not go back, so no later leader was elected before confirm was called. It returns false if
// this node leads no longer, or after twice the election timeout.
func (rs *reads) confirm(l *leadership) bool {
	until := time.Now().Add(2 * rs.node.opts.Election)
	for {
		confirmed, deposed := rs.confirmOnce(l, until)
		if confirmed || deposed {
			return confirmed
		}
		select {
		case <-time.After(max(rs.node.opts.Election/20, time.Millisecond)):
		case <-rs.node.life.closing.Done():
			return false
		}
		if rs.node.role.leader() != l || time.Now().After(until) {
			return false
		}
	}
}

// confirmOnce asks as many voters as are needed, and the others if one of them fails, has
// another term, or does not answer soon. It reports whether a majority has the term of the
// leadership, and whether a voter has a later one.
func (rs *reads) confirmOnce(l *leadership, until time.Time) (confirmed, deposed bool) {
	f := rs.node.raft.GetConfiguration()
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
		if string(m.ID) == rs.node.opts.ID {
			need--
		} else {
			voters = append(voters, m)
		}
	}
	if need += all/2 + 1; need == 0 || need > len(voters) {
		return need == 0, false
	}
	if late := rs.late.Load(); late != nil && voters[0].ID == *late {
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
				term, err := rs.members.MemberTerm(voters[from].ID, voters[from].Address, until)
				if err != nil {
					term = 0
				}
				replies <- reply{from, term}
			}()
		}
	}
	ask(need)
	soon := time.NewTimer(max(rs.node.opts.Election/50, time.Millisecond))
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
			rs.late.Store(&voters[r.from].ID)
		case <-soon.C:
			rs.late.Store(&voters[slices.Index(replied, false)].ID)
		case <-rs.node.life.closing.Done():
			return false, false
		}
		ask(len(voters))
	}
	return need == 0, false
}

// readSync is a moment at which this node had all entries that were committed before it.
type readSync struct {
	at    time.Time
	index uint64
}

// fresh ensures that this node is no further behind than a bound.
func (rs *reads) fresh(ctx context.Context, bound time.Duration) error {
	if bound < 0 || rs.node.role.leader() != nil && rs.confirmLeads(ctx) == nil {
		return nil
	}
	if s := rs.lastSync.Load(); s != nil && time.Since(s.at) <= bound {
		return nil
	}
	err := rs.reading.do(ctx, rs.syncRead)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrStale, err)
	}
	return nil
}

// syncRead asks the leader for the last committed entry, and waits until this node has it.
func (rs *reads) syncRead() error {
	begin := time.Now()
	ctx, cancel := context.WithTimeout(rs.node.life.closing, max(2*rs.node.opts.Election, time.Second))
	defer cancel()
	address, id := rs.node.raft.LeaderWithID()
	if id == "" {
		return rs.node.role.notLeader()
	}
	if string(id) == rs.node.opts.ID {
		return rs.confirmLeads(ctx)
	}
	a, err := rs.node.wire.ask(ctx, peer{string(id), string(address)}, request{Kind: askIndex})
	if err != nil {
		return err
	}
	if err := rs.node.Wait(ctx, Position{Index: a.Index}); err != nil {
		return err
	}
	rs.lastSync.Store(&readSync{begin, a.Index})
	rs.node.catalog.settle()
	return nil
}

// catchUp waits until this node has caught up after its start, and records it.
func (rs *reads) catchUp() {
	for wait := 10 * time.Millisecond; !rs.node.progress.recovered.Load(); wait = min(2*wait, time.Second) {
		if rs.reading.do(rs.node.life.closing, rs.syncRead) == nil {
			continue
		}
		select {
		case <-rs.node.life.closing.Done():
			return
		case <-time.After(wait):
		}
	}
}

// WaitReady waits until this node has all commits from before its start.
func (n *Node) WaitReady(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !n.progress.recovered.Load() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("replica: %w: %w", errRecovering, ctx.Err())
		case <-n.life.closing.Done():
			return net.ErrClosed
		}
	}
	return nil
}
