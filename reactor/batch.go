// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"sync/atomic"
)

// group counts down the operations of a batch.
type group struct {
	left    atomic.Int32
	done    chan struct{}
	results []Result
	chain   bool
	slots   []*slot
}

func (g *group) add(i int, res Result) {
	g.results[i] = res
	if g.left.Add(-1) == 0 {
		g.done <- struct{}{}
	}
}

func newGroup() any { return &group{done: make(chan struct{}, 1)} }

// DoBatch starts operations together, in one system call as far as the
// submission queue reaches, and waits for all of them. Their results are in
// results, which must be as long as ops, at the same places. More operations
// than a loop may hold are done in portions. An error means that some have not
// been started: it is their Err, too. A callback must not call DoBatch.
func (r *Reactor) DoBatch(ops []Op, results []Result) error {
	return r.batch(ops, results, false)
}

// DoChain is [Reactor.DoBatch] of operations of which each starts when the one
// before has succeeded in full: after a failure, or a short transfer, the rest
// ends with ECANCELED. A chain must fit into the submission queue; with SQPoll and
// several rings it may have 8 operations. What the kernel did not take, because it ran
// out of memory in the middle of the chain, is started again when all before it has
// succeeded.
func (r *Reactor) DoChain(ops []Op, results []Result) error {
	if len(ops) > min(r.opts.Entries, r.opts.InFlight) {
		return errChainTooLong
	}
	return r.batch(ops, results, true)
}

var errResults = errors.New("reactor: as many results as operations are needed")

func (r *Reactor) batch(ops []Op, results []Result, chain bool) error {
	if len(results) != len(ops) {
		return errResults
	}
	if len(ops) == 0 {
		return nil
	}
	l := r.route(&ops[0])
	l.mayWait()
	l.busy.Add(1)
	defer l.busy.Add(-1)
	portion := len(ops)
	if !chain {
		portion = min(portion, max(r.opts.InFlight/2, 1))
	}
	for len(ops) > 0 {
		n := min(portion, len(ops))
		if err := l.doGroup(ops[:n], results[:n], chain); err != nil {
			for i := range results {
				results[i] = Result{Cause: err}
			}
			return err
		}
		if chain {
			n = settled(ops, results)
			l.stats.retried.Add(uint64(len(ops) - n))
		}
		ops, results = ops[n:], results[n:]
	}
	return nil
}

// errSplit is the cause of what the kernel did not take of a chain.
var errSplit = errors.New("reactor: the kernel took only a part of the chain")

// settled returns how many operations of a chain are over: all, unless the kernel took
// a part only and nothing in that part has failed, as far as can be told: it must have
// transferred what it was to, or have answered 0 where there is nothing to transfer.
func settled(ops []Op, results []Result) int {
	for i, res := range results {
		if res.Cause == errSplit {
			return i
		}
		e := &ops[i].SQE
		if res.Cause != nil || res.Res < 0 || uint32(res.Res) != e.Raw().Len || e.Raw().Flags&linkFlags != 0 {
			break
		}
	}
	for i := range results {
		if results[i].Cause == errSplit {
			results[i].Cause = nil // cancelled, as what follows a failure is
		}
	}
	return len(ops)
}

// doGroup starts operations that the table has room for and waits for them.
func (l *loop) doGroup(ops []Op, results []Result, chain bool) error {
	g := l.groups.Get().(*group)
	g.results, g.chain = results, chain
	g.left.Store(int32(len(ops)))
	defer func() {
		clear(g.slots)
		g.results, g.slots = nil, g.slots[:0]
		l.groups.Put(g)
	}()
	err := l.fillGroup(g, ops)
	if err == nil {
		err = l.start(g)
	}
	if err != nil {
		for _, s := range g.slots {
			l.release(s)
		}
		return err
	}
	<-g.done
	return nil
}

// fillGroup takes a slot for each operation. One group does so at a time: two
// that have a part of what they need could wait for each other.
func (l *loop) fillGroup(g *group, ops []Op) error {
	<-l.gather
	defer l.gather.put()
	for i := range ops {
		s, err := l.acquire(context.Background())
		if err != nil {
			return err
		}
		v := &s.Value
		v.group, v.index, v.detached = g, i, true
		g.slots = append(g.slots, s)
		if err := l.adopt(s, &ops[i]); err != nil {
			return err
		}
	}
	return nil
}
