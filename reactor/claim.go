// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"sync"
	"sync/atomic"
)

// claim counts who needs a registered thing: its holder, in the lowest bit, and
// the operations that name it, above.
type claim struct{ state atomic.Int64 }

const (
	byHolder    = 1
	byOperation = 2
)

// hold makes the caller the holder. Nobody has a claim.
func (c *claim) hold() { c.state.Store(byHolder) }

// enter adds an operation, while there is a holder.
func (c *claim) enter() bool {
	for {
		n := c.state.Load()
		if n&byHolder == 0 {
			return false
		}
		if c.state.CompareAndSwap(n, n+byOperation) {
			return true
		}
	}
}

// leave ends the claim of an operation and reports whether it was the last.
func (c *claim) leave() (last bool) { return c.state.Add(-byOperation) == 0 }

// drop ends the holder's claim, if there is one, and reports whether it was the
// last.
func (c *claim) drop() (last, held bool) {
	for {
		n := c.state.Load()
		if n&byHolder == 0 {
			return false, false
		}
		if c.state.CompareAndSwap(n, n-byHolder) {
			return n == byHolder, true
		}
	}
}

var (
	errReleased = errors.New("reactor: the operation names a file or a buffer that was given back")
	errForeign  = errors.New("reactor: the operation names a file or a buffer of another reactor")
)

// adopt puts an operation into a slot, which from then on has a claim on what it
// names.
func (l *loop) adopt(s *slot, op *Op) error {
	v := &s.Value
	v.op = *op
	v.op.File, v.op.Buffer = nil, nil
	if f := op.File; f != nil {
		switch {
		case &f.r.opts != l.opts:
			return errForeign
		case !f.claim.enter():
			return errReleased
		}
		v.op.File = f
	}
	if b := op.Buffer; b != nil {
		switch {
		case &b.pool.r.opts != l.opts:
			return errForeign
		case !b.claim.enter():
			return errReleased
		}
		v.op.Buffer = b
	}
	l.took(v)
	return nil
}

// disown ends the claims of an operation that is over.
func (v *entry) disown() {
	if f := v.op.File; f != nil && f.claim.leave() {
		f.r.background.run(f.clear)
	}
	if b := v.op.Buffer; b != nil && b.claim.leave() {
		b.free(true)
	}
}

// background runs what nobody can wait for. It may be used under any lock.
type background struct {
	mu      sync.Mutex
	running int
	over    chan struct{} // closed when nothing runs any more; nil when nobody waits
}

func (b *background) run(f func()) {
	b.mu.Lock()
	b.running++
	b.mu.Unlock()
	go func() {
		f()
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.running--; b.running == 0 && b.over != nil {
			close(b.over)
			b.over = nil
		}
	}()
}

// wait waits until nothing runs.
func (b *background) wait() {
	b.mu.Lock()
	if b.running == 0 {
		b.mu.Unlock()
		return
	}
	if b.over == nil {
		b.over = make(chan struct{})
	}
	over := b.over
	b.mu.Unlock()
	<-over
}
