// SPDX-License-Identifier: MIT

package kernelsim

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// submit takes up to n entries of those that are shown. The caller holds mu.
func (r *Ring) submit(n int) (int, error) {
	n = min(n, int(r.shown.Load()-r.head.Load()))
	k, f := r.k, &r.k.o.Faults
	d := k.dice(ofSubmission+uint64(r.id)<<33, r.submits)
	r.submits++
	switch {
	case r.closed:
		return 0, syscall.EBADF
	case r.fatal != nil:
		return 0, r.fatal
	case d.hit(f.Fatal):
		r.fail()
		return 0, r.fatal
	case k.o.Plan.Submit != nil && n > 0:
		take, split, err := k.o.Plan.Submit(n)
		switch {
		case err == syscall.EBADF:
			r.fail()
			return 0, r.fatal
		case err != nil:
			k.trace.add(event{what: "refuse", ring: r.id, res: int32(n)})
			return 0, err
		}
		return r.take(n, take, split, d), nil
	case d.hit(f.Spurious):
		k.trace.count("spurious wake-up")
		k.soon(d.IntN(20), r.disturb)
	}
	if n == 0 {
		return 0, nil
	}
	if err := r.refuse(d); err != nil {
		k.trace.add(event{what: "refuse", ring: r.id, res: int32(n)})
		return 0, err
	}
	limit := n
	if d.hit(f.Partial) {
		if limit = 1 + d.IntN(n); limit < n {
			k.trace.count("partial")
		}
	}
	return r.take(n, limit, d.hit(f.Split), d), nil
}

// disturb wakes somebody without a reason.
func (r *Ring) disturb() {
	if r.o.Pinned {
		r.wake.sent++
		r.k.arrived(r.wake)
	}
	r.signal()
}

// refuse decides whether the kernel is out of memory, or of patience.
func (r *Ring) refuse(d dice) error {
	if r.k.o.BusyOnOverflow && len(r.backlog) > 0 {
		return syscall.EBUSY
	}
	if r.refusing == 0 {
		if !d.hit(r.k.o.Faults.Refuse) {
			return nil
		}
		r.refusing = 1 + d.IntN(10)
		r.refusal = oneOf[error](d, syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM)
	}
	r.refusing--
	return r.refusal
}

// take takes entries, at least up to limit; beyond it only what a chain needs,
// unless it is to be split. An entry that is invalid ends it.
func (r *Ring) take(n, limit int, split bool, d dice) int {
	var chain []*op
	taken, valid := 0, true
	for taken < n && valid {
		o := r.next()
		taken++
		chain = append(chain, o)
		linked := o.sqe.Raw().Flags&linkFlags != 0
		cut := split && taken >= limit
		switch {
		case linked && taken < n && !cut:
			continue // until the end of the chain
		case linked && taken < n:
			r.k.note("split", o, 0)
		case linked:
			r.k.violation("ring %d: a submission ends inside a chain: %v, user data %x, tag %d", r.id, o.code(), o.sqe.Raw().UserData, o.tag())
		}
		valid = r.startChain(chain, d)
		chain = nil
		if taken >= limit {
			break
		}
	}
	return taken
}

// next takes one entry.
func (r *Ring) next() *op {
	head := r.head.Load()
	o := &op{ring: r, sqe: r.sqes[int(head)%len(r.sqes)]}
	r.head.Store(head + 1)
	r.k.note("take", o, 0)
	r.k.claim(o)
	return o
}

// startChain starts operations of which each depends on the one before. False
// says that one was invalid.
func (r *Ring) startChain(chain []*op, d dice) bool {
	k := r.k
	var last *op
	for _, o := range chain {
		switch {
		case last == nil:
		case o.sqe.Raw().Opcode == abi.IORING_OP_LINK_TIMEOUT && last.timeout == nil:
			last.timeout = o
			o.span = k.timespec(o)
			k.plan(o)
			continue
		default:
			last.next = o
		}
		last = o
	}
	head := chain[0]
	for _, o := range chain {
		bad := o.sqe.Raw().Opcode == abi.IORING_OP_LINK_TIMEOUT && (o == head || d.hit(k.o.Faults.BadLink) || o.fate.errno != 0 && !o.fate.lost)
		if bad || o.sqe.Raw().Opcode >= abi.IORING_OP_LAST {
			k.note("bad link", o, 0)
			k.reject(chain, o)
			return false
		}
	}
	k.start(head)
	return true
}

// reject ends a chain that has an invalid entry.
func (k *Kernel) reject(chain []*op, bad *op) {
	for _, o := range chain {
		o.next, o.timeout = nil, nil
	}
	for _, o := range chain {
		if o == bad {
			k.finish(o, -int32(syscall.EINVAL))
			continue
		}
		k.outcome(o).Unasked++
		k.finish(o, -int32(syscall.ECANCELED))
	}
}

// Enter takes the entries that were published and waits as the options say, as
// [uring.Ring.Wait] does. It knows Count, Published and Timeout.
func (r *Ring) Enter(o uring.WaitOptions) (int, error) {
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.waiting {
		k.violation("ring %d: two waits at a time", r.id)
	}
	published := min(o.Published, int(r.shown.Load()-r.head.Load())) // the count may be stale
	n, err := r.submit(published)
	if err != nil || n < published || o.Count == 0 {
		return n, err
	}
	r.wait(o)
	if n == 0 && r.fatal != nil {
		return 0, r.fatal
	}
	return n, nil
}

// wait blocks until there are completions, or something else ends it. The
// caller holds mu.
func (r *Ring) wait(o uring.WaitOptions) {
	k := r.k
	d := k.dice(ofWait+uint64(r.id)<<33, r.waits)
	r.waits++
	r.interrupt = false
	number := r.waits
	stop := func() {
		if r.waiting && r.waits == number {
			k.trace.count("interrupted wait")
			r.interrupt = true
			r.arrived.Broadcast()
		}
	}
	if d.hit(k.o.Faults.Return) || k.o.Plan.Wait != nil && k.o.Plan.Wait() {
		k.soon(d.IntN(20), stop)
	}
	var timer *time.Timer
	if o.Timeout > 0 {
		timer = k.later(o.Timeout, stop)
	}
	r.waiting = true
	for len(r.cq)+len(r.backlog) < o.Count && r.fatal == nil && !r.interrupt && !r.closed {
		r.arrived.Wait()
	}
	r.waiting = false
	if timer != nil {
		timer.Stop()
	}
}
