// SPDX-License-Identifier: MIT

package kernelsim

import (
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// submit takes up to n published SQEs of a ring. The caller holds mu.
func (k *Kernel) submit(r front, n int) (int, error) {
	b, f := r.base(), &k.o.Faults
	d := k.dice(ofSubmission+uint64(b.id)<<33, b.submits)
	b.submits++
	switch {
	case b.closed, b.failed:
		return 0, syscall.EBADF
	case d.hit(f.Fatal):
		k.fail(r)
		return 0, syscall.EBADF
	case k.o.Plan.Submit != nil && n > 0:
		take, split, errno := k.o.Plan.Submit(n)
		if errno == syscall.EBADF {
			k.fail(r)
		}
		if errno != 0 {
			k.trace.add(event{what: "refuse", ring: b.id, res: int32(n)})
			return 0, errno
		}
		return k.takeSome(r, n, take, split, d), nil
	case d.hit(f.Spurious):
		k.trace.count("spurious wake-up")
		k.soon(d.IntN(20), func() { k.disturb(r) })
	}
	if n == 0 {
		return 0, nil
	}
	if err := k.refuse(b, d); err != nil {
		k.trace.add(event{what: "refuse", ring: b.id, res: int32(n)})
		return 0, err
	}
	limit := n
	if d.hit(f.Partial) {
		if limit = 1 + d.IntN(n); limit < n {
			k.trace.count("partial")
		}
	}
	return k.takeSome(r, n, limit, d.hit(f.Split), d), nil
}

// disturb sometimes wakes a waiter without a reason.
func (k *Kernel) disturb(r front) {
	r.signal()
}

// refuse decides whether the kernel is short of memory.
func (k *Kernel) refuse(b *ringBase, d dice) error {
	if k.o.BusyOnOverflow && len(b.backlog) > 0 {
		return syscall.EBUSY
	}
	if b.refusing == 0 {
		if !d.hit(k.o.Faults.Refuse) {
			return nil
		}
		b.refusing = 1 + d.IntN(10)
		b.refusal = oneOf[error](d, syscall.EAGAIN, syscall.EBUSY, syscall.ENOMEM)
	}
	b.refusing--
	return b.refusal
}

const linkFlags = abi.IOSQE_IO_LINK | abi.IOSQE_IO_HARDLINK

// takeSome takes up to limit SQEs. It exceeds limit to complete a chain, unless the chain is to be
// split. An invalid SQE ends it.
func (k *Kernel) takeSome(r front, n, limit int, split bool, d dice) int {
	var chain []*op
	taken, valid := 0, true
	for taken < n && valid && (limit > 0 || split) {
		o := r.take()
		taken++
		if o == nil { // an invalid SQE is counted too
			continue
		}
		k.note("take", o, 0)
		k.claim(o)
		chain = append(chain, o)
		linked := o.e.Flags&linkFlags != 0
		cut := split && taken >= limit
		switch {
		case linked && taken < n && !cut:
			continue // until the end of the chain
		case linked && taken < n:
			k.note("split", o, 0)
		case linked:
			k.violation("ring %d: a submission ends inside a chain: %v", r.base().id, o)
		}
		valid = k.startChain(chain, d)
		chain = nil
		if taken >= limit {
			break
		}
	}
	return taken
}

// startChain starts a chain of operations. It returns false if one was invalid.
func (k *Kernel) startChain(chain []*op, d dice) bool {
	var last *op
	for _, o := range chain {
		switch {
		case last == nil:
		case o.e.Opcode == abi.IORING_OP_LINK_TIMEOUT && last.timeout == nil:
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
		bad := o.e.Opcode == abi.IORING_OP_LINK_TIMEOUT && (o == head || d.hit(k.o.Faults.BadLink) || o.effect.errno != 0 && !o.effect.lost)
		if bad || o.e.Opcode >= abi.IORING_OP_LAST {
			k.note("bad link", o, 0)
			k.reject(chain, o)
			return false
		}
	}
	k.start(head)
	return true
}

// reject ends a chain with an invalid SQE.
func (k *Kernel) reject(chain []*op, bad *op) {
	for _, o := range chain {
		o.next, o.timeout = nil, nil
	}
	for _, o := range chain {
		if o == bad {
			k.finish(o, -int32(syscall.EINVAL))
			continue
		}
		k.result(o).Unasked++
		k.finish(o, -int32(syscall.ECANCELED))
	}
}

// restrictions is the list of operations that a ring may use.
type restrictions struct {
	ops, registers []uint8
	flags          uint8
	required       uint8
}

// allows reports whether the restrictions permit an SQE.
func (l *restrictions) allows(e *uring.RawSQE) bool {
	return l == nil || slices.Contains(l.ops, e.Opcode) && e.Flags&^(l.flags|l.required) == 0 && e.Flags&l.required == l.required
}
