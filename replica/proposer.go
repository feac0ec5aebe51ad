// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"
)

// proposer makes raft's entries of the operations of this node, and gives each its result.
type proposer struct {
	closing        context.Context
	stall          time.Duration // Options.stall
	flight         int64         // Options.flight
	maxTransaction int
	metrics        *metrics
	apply          func(entry []byte, timeout time.Duration) raft.ApplyFuture
	outcome        func(error) error        // translates raft's errors
	settled        func(uint64, proposalID) // is called for a transaction of a database whose outcome is known late

	run    uint64 // random, chosen when the node starts
	next   atomic.Uint64
	queue  chan *proposal
	flying atomic.Int64              // bytes of this node's entries that raft has not committed or refused
	moved  atomic.Pointer[time.Time] // when entries were last committed; nil if none were

	mu      sync.Mutex
	pending map[proposalID]*proposal // nil when the node is closed
}

func (q *proposer) open(n *Node) {
	q.closing, q.metrics = n.life.closing, &n.metrics
	q.stall, q.flight, q.maxTransaction = n.opts.stall, n.opts.flight, n.opts.MaxTransaction
	q.run, q.queue, q.pending = rand.Uint64(), make(chan *proposal, 1024), make(map[proposalID]*proposal)
	q.apply = func(entry []byte, timeout time.Duration) raft.ApplyFuture { return n.raft.Apply(entry, timeout) }
}

// proposal is an operation that was passed to raft and has no result yet.
type proposal struct {
	id    proposalID
	begin time.Time
	op    []byte
	txn   *txn
	at    Position
	done  chan error
}

// finish gives the result to the proposer. A nil proposal has no proposer on this node.
func (p *proposal) finish(err error) {
	if p != nil {
		p.done <- err
	}
}

// settleAbandoned is called when the outcome of a proposal is known after its proposer may have left.
func (q *proposer) settleAbandoned(p *proposal) {
	if p.txn == nil {
		return
	}
	q.settled(p.txn.db, p.id)
}

// await waits for the result of a proposal, until ctx or the caller's connection ends, or commits stall; a nil
// channel never ends. It calls leave before it returns without the result.
func (q *proposer) await(ctx context.Context, ended <-chan struct{}, p *proposal, leave func()) (err error) {
	defer func() {
		if errors.Is(err, ErrUncertain) {
			q.metrics.Uncertain.Add(1)
		}
	}()
	select {
	case err := <-p.done:
		return err
	default:
	}
	s := q.newStall(p.begin)
	defer s.timer.Stop()
	for err == nil {
		select {
		case err := <-p.done:
			return err
		case <-ctx.Done():
			err = reason(ctx)
		case <-ended:
			err = errEnded
		case <-s.timer.C:
			err = s.over()
		}
	}
	leave()
	if q.claim(p.id) == nil {
		err = <-p.done // the result is on its way
		q.settleAbandoned(p)
		return err
	}
	return &UncertainError{Err: err}
}

func (q *proposer) propose(kind byte, rest []byte) *proposal {
	p := &proposal{id: proposalID{q.run, q.next.Add(1)}, begin: time.Now(), done: make(chan error, 1)}
	p.op = appendOp(make([]byte, 0, opHeader+len(rest)), kind, p.id, rest)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.pending == nil { // the node is closed
		p.finish(net.ErrClosed)
		return p
	}
	q.pending[p.id] = p
	return p
}

// claim removes a proposal from those that wait. The caller must finish it.
func (q *proposer) claim(id proposalID) *proposal {
	q.mu.Lock()
	defer q.mu.Unlock()
	p := q.pending[id]
	delete(q.pending, id)
	return p
}

// commit proposes an operation and waits for its result.
func (q *proposer) commit(ctx context.Context, kind byte, rest []byte) error {
	p := q.propose(kind, rest)
	q.enqueue(ctx, p)
	return q.await(ctx, nil, p, func() {})
}

// enqueue passes a proposal to the proposer. If that is impossible, the proposal's result is the reason.
func (q *proposer) enqueue(ctx context.Context, p *proposal) {
	select {
	case q.queue <- p:
		return
	default:
	}
	s := q.newStall(p.begin)
	defer s.timer.Stop()
	var err error
	for err == nil {
		select {
		case q.queue <- p:
			return
		case <-ctx.Done():
			err = reason(ctx)
		case <-q.closing.Done():
			err = net.ErrClosed
		case <-s.timer.C:
			err = s.over()
		}
	}
	q.claim(p.id).finish(err)
}

// stall ends a wait for a commit during which nothing is committed for Options.stall. A leader whose followers
// answer and cannot store entries, for example because their disks are full, goes on to lead.
type stall struct {
	q     *proposer
	begin time.Time
	timer *time.Timer // over must be called when it fires
}

func (q *proposer) newStall(begin time.Time) *stall {
	return &stall{q, begin, time.NewTimer(q.stall - time.Since(begin))}
}

// over returns an error if the wait is over. Otherwise it sets the timer again.
func (s *stall) over() error {
	rest := s.q.untilStalled(s.begin)
	if rest <= 0 {
		return s.q.errStalled()
	}
	s.timer.Reset(rest)
	return nil
}

// untilStalled returns how long a wait that began at a time may go on if nothing is committed.
func (q *proposer) untilStalled(begin time.Time) time.Duration {
	if moved := q.moved.Load(); moved != nil && moved.After(begin) {
		begin = *moved
	}
	return q.stall - time.Since(begin)
}

func (q *proposer) errStalled() error {
	return fmt.Errorf("replica: nothing was committed for %v although this node leads: too few members can store entries, for example because disks are full", q.stall)
}

// abandon finishes the proposals that have no result, and refuses later ones.
func (q *proposer) abandon(err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, p := range q.pending {
		p.finish(&UncertainError{Err: err})
	}
	q.pending = nil
}

// entryBytes is the size of a raft entry from which no further operation is added. An entry has at most
// entryOps operations: a database's identity is made of the entry's index and the operation's number in 12 bits.
const (
	entryBytes = 4 << 20
	entryOps   = 1<<12 - 1
)

// While the results of opsInFlight operations or more are awaited, raft entries are made entrySpacing
// apart: the costs of an entry do not depend on its operations, and the waiting ones share the next entry.
// Fewer operations do not wait for each other. Where members are far apart, entrySpacing bounds what an operation
// waits.
const (
	opsInFlight  = 16
	entrySpacing = 2 * time.Millisecond
)

// loop makes raft entries of the waiting operations. While it waits as above, or while raft writes an
// entry and Apply blocks, the next group collects. Raft keeps an entry in memory until it
// is applied, so a new one is made only if the others have fewer than Options.flight bytes.
func (q *proposer) loop() {
	inFlight, over := 0, make(chan int)
	var last time.Time // when the last entry was made
	for {
		queue := q.queue
		var spacing <-chan time.Time
		switch rest := entrySpacing - time.Since(last); {
		case q.flying.Load() >= q.flight:
			queue = nil
		case inFlight >= opsInFlight && rest > 0:
			queue, spacing = nil, time.After(rest)
		}
		var group []*proposal
		select {
		case <-q.closing.Done():
			return
		case k := <-over:
			inFlight -= k
			continue
		case <-spacing:
			continue
		case p := <-queue:
			group = append(group, p)
		}
		q.gather()
		size := len(group[0].op)
	gather:
		for size < entryBytes && len(group) < entryOps {
			select {
			case p := <-q.queue:
				if size+len(p.op) > 110<<20 {
					q.claim(p.id).finish(&TooLargeError{q.maxTransaction})
					continue
				}
				group, size = append(group, p), size+len(p.op)
			default:
				break gather
			}
		}
		entry := make([]byte, 0, size)
		for _, p := range group {
			entry = append(entry, p.op...)
			p.op = nil
		}
		q.metrics.Entries.Add(1)
		inFlight += len(group)
		last = time.Now()
		bytes := int64(len(entry))
		q.flying.Add(bytes)
		future := q.apply(entry, 0)
		go func() {
			err := future.Error()
			q.flying.Add(-bytes)
			if err != nil {
				for _, p := range group {
					q.claim(p.id).finish(q.outcome(err))
					q.settleAbandoned(p)
				}
			}
			select {
			case over <- len(group):
			case <-q.closing.Done():
			}
		}()
	}
}

// gather yields while operations are added: the writers whose transactions were in the entry before have been
// woken at once, and propose the next ones when they have run. A writer that is alone is not delayed.
func (q *proposer) gather() {
	begin := time.Now()
	for idle, waiting := 0, len(q.queue); idle < 3 && time.Since(begin) < time.Millisecond; idle++ {
		runtime.Gosched()
		if now := len(q.queue); now > waiting {
			idle, waiting = -1, now
		}
	}
}
