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

// role knows whether this node leads.
type role struct {
	node     *Node
	running  atomic.Bool // raft has started
	retiring atomic.Bool // Close was called
	leading  atomic.Pointer[leadership]
	prompt   atomic.Bool // transactions are written into the files when they are applied; a node that leads has none deferred

	mu   sync.Mutex
	turn chan struct{} // closed when leading changes; nil if none waits
}

// set begins or ends a leadership.
func (r *role) set(l *leadership) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leading.Store(l)
	if r.turn != nil {
		close(r.turn)
		r.turn = nil
	}
}

// current returns the leadership, nil if there is none, and a channel that is closed when that changes.
func (r *role) current() (l *leadership, turn <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.turn == nil {
		r.turn = make(chan struct{})
	}
	return r.leading.Load(), r.turn
}

// alone reports whether no other member can lead.
func (r *role) alone() bool {
	f := r.node.raft.GetConfiguration()
	if f.Error() != nil {
		return true
	}
	for _, m := range f.Configuration().Servers {
		if m.Suffrage == raft.Voter && string(m.ID) != r.node.opts.ID {
			return false
		}
	}
	return true
}

// handOver transfers the leadership before the node is closed, so that the others need not notice that it
// is gone.
func (r *role) handOver() {
	if !r.running.Load() || r.node.raft.State() != raft.Leader || r.alone() {
		return
	}
	ctx, cancel := context.WithTimeout(r.node.life.closing, max(r.node.opts.Election, time.Second))
	defer cancel()
	done := make(chan error, 1)
	go func() {
		f := r.node.raft.LeadershipTransfer()
		r.node.store.note()
		done <- f.Error()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// leadership is a term in which this node leads and has all entries that were committed before.
type leadership struct{ term uint64 }

// answer returns the error of a future. When raft is shut down, it drops committed entries that wait for
// the state machine, and never answers their futures.
func (r *role) answer(f raft.Future) error {
	done := make(chan error, 1)
	go func() { done <- f.Error() }()
	select {
	case err := <-done:
		return err
	case <-r.node.life.closing.Done():
		return raft.ErrRaftShutdown
	}
}

// catchUpWith waits until all entries from before a term of this node are applied. It returns false if
// the node leads no longer. A barrier fails while the leadership is being transferred, which may fail too.
func (r *role) catchUpWith(term uint64) bool {
	for r.answer(r.node.raft.Barrier(0)) != nil {
		select {
		case <-r.node.life.closing.Done():
			return false
		case <-time.After(r.node.opts.Election / 50):
		}
		if r.node.raft.State() != raft.Leader || r.node.raft.CurrentTerm() != term {
			return false
		}
	}
	return true
}

// leader returns the leadership of the current term, nil if this node does not lead or does
// not yet have all entries that were committed before.
func (r *role) leader() *leadership {
	l := r.leading.Load()
	if l == nil || r.node.fitness.stuck.Load() {
		return nil
	}
	if bug := r.node.opts.bug; bug != nil && bug.trustsItself() {
		return l
	}
	if r.node.raft.State() != raft.Leader || r.node.raft.CurrentTerm() != l.term {
		return nil
	}
	return l
}

func (r *role) notLeader() error {
	if r.node.life.closing.Err() != nil {
		return net.ErrClosed
	}
	address, id := r.node.raft.LeaderWithID()
	if string(id) == r.node.opts.ID {
		return &NotLeaderError{} // this node has just been elected and is not ready
	}
	return &NotLeaderError{string(id), string(address)}
}

func (r *role) writable() error {
	if r.leader() == nil {
		return r.notLeader()
	}
	return nil
}

// giveUp transfers the leadership after a failure of the disk.
func (r *role) giveUp() {
	_ = r.node.raft.LeadershipTransfer() // raft may be closed before it answers
	r.node.store.note()
}

// outcome translates raft's errors.
func (r *role) outcome(err error) error {
	switch {
	case errors.Is(err, raft.ErrNotLeader):
		return r.notLeader() // the operation was not proposed
	case errors.Is(err, raft.ErrLeadershipTransferInProgress), errors.Is(err, raft.ErrEnqueueTimeout):
		return &NotLeaderError{}
	}
	return &UncertainError{Err: err}
}

// WaitLeader waits until a leader is known, and returns its ID and address. If it is this
// node, the node is ready to write.
func (n *Node) WaitLeader(ctx context.Context) (id, address string, err error) {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		a, i := n.raft.LeaderWithID()
		if i != "" && (string(i) != n.opts.ID || n.role.leader() != nil) {
			return string(i), string(a), nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return "", "", fmt.Errorf("replica: no leader: %w", ctx.Err())
		case <-n.life.closing.Done():
			return "", "", net.ErrClosed
		}
	}
}
