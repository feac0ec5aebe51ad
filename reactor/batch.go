// SPDX-License-Identifier: MIT

package reactor

import (
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
// than a loop may hold are done in portions.
func (r *Reactor) DoBatch(ops []Op, results []Result) error {
	return r.batch(ops, results, false)
}

// DoChain is [Reactor.DoBatch] of operations of which each starts when the one
// before has succeeded in full: after a failure, or a short transfer, the rest
// ends with ECANCELED. A chain must fit into the submission queue.
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
	l.busy.Add(1)
	defer l.busy.Add(-1)
	portion := len(ops)
	if !chain {
		portion = min(portion, max(r.opts.InFlight/2, 1))
	}
	for len(ops) > 0 {
		n := min(portion, len(ops))
		if err := l.doGroup(ops[:n], results[:n], chain); err != nil {
			return err
		}
		ops, results = ops[n:], results[n:]
	}
	return nil
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
	for i := range ops {
		s, err := l.acquire(true)
		if err != nil {
			l.giveBack(g.slots)
			return err
		}
		s.Value.op, s.Value.group, s.Value.index, s.Value.detached = ops[i], g, i, true
		g.slots = append(g.slots, s)
	}
	if err := l.start(g.slots, chain); err != nil {
		l.giveBack(g.slots)
		return err
	}
	<-g.done
	return nil
}

// giveBack releases slots that were not started.
func (l *loop) giveBack(slots []*slot) {
	for _, s := range slots {
		l.release(s)
	}
}
