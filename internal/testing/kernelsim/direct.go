// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// RingOptions configure a ring.
type RingOptions struct {
	Entries   int // a power of two
	CQEntries int
}

// Ring is a simulated ring. It has the rules of [uring.Ring]: one goroutine at a time on the
// submission side, and one on the completion side. The fields of each side have no lock, so that
// the race detector reports code that breaks the rules.
type Ring struct {
	ringBase
	o RingOptions

	sqes []uring.SQE
	tail uint32        // submission side: SQEs handed out
	head atomic.Uint32 // SQEs taken by the kernel

	reaped    uint64 // completion side
	overflown uint32 // completion side

	// Guarded by the kernel's mu.
	cq        []uring.CQE
	owner     []posted // of the completions in cq
	overflows uint32
	park      *Parker
}

// Open makes a ring.
func (k *Kernel) Open(o RingOptions) *Ring {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &Ring{ringBase: ringBase{k: k, id: len(k.rings)}, o: o, sqes: make([]uring.SQE, o.Entries)}
	r.arrived = sync.NewCond(&k.mu)
	k.rings = append(k.rings, r)
	return r
}

// SQE returns the next free SQE, or nil.
func (r *Ring) SQE() *uring.SQE {
	if r.SQSpace() == 0 {
		return nil
	}
	e := &r.sqes[int(r.tail)%len(r.sqes)]
	r.tail++
	return e
}

// SQSpace returns the number of free SQEs.
func (r *Ring) SQSpace() int { return len(r.sqes) - int(r.tail-r.head.Load()) }

// Submit submits the SQEs.
func (r *Ring) Submit() (int, error) {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.k.submit(r, int(r.tail-r.head.Load()))
}

// SubmitNoWait is the same as Submit.
func (r *Ring) SubmitNoWait() (int, error) { return r.Submit() }

// Submitter returns the ID of a thread, which is always the same. A simulated operation that is
// cancelled without a request has the cause that this thread has exited.
func (r *Ring) Submitter() int { return 1 }

// Exited reports that the submitting thread has exited.
func (r *Ring) Exited(int) (exited, sure bool) { return true, true }

// AnswersCancelled reports whether a file may return ECANCELED itself; it is always true.
func (r *Ring) AnswersCancelled(int) bool { return true }

// Reap takes completions, including those that overflowed.
func (r *Ring) Reap(dst []uring.CQE) int {
	r.k.mu.Lock()
	n := 0
	for {
		n += r.drain(dst[n:])
		if n == len(dst) || len(r.backlog) == 0 || r.closed {
			break
		}
		r.overflows++
		if r.failed { // a failed ring cannot fetch them
			break
		}
		r.refill()
	}
	over := r.overflows
	r.k.mu.Unlock()
	r.reaped += uint64(n)
	r.overflown = over
	return n
}

// drain takes completions from the completion queue. The caller holds mu.
func (r *Ring) drain(dst []uring.CQE) int {
	n := copy(dst, r.cq)
	for _, p := range r.owner[:n] {
		if p.stale {
			r.k.soon(r.k.order.IntN(30), func() { r.again(p.cqe) })
		}
	}
	r.cq = r.cq[:copy(r.cq, r.cq[n:])]
	r.owner = r.owner[:copy(r.owner, r.owner[n:])]
	return n
}

// refill moves overflowed completions into the completion queue. The caller holds mu.
func (r *Ring) refill() {
	n := min(r.o.CQEntries-len(r.cq), len(r.backlog))
	for _, p := range r.backlog[:n] {
		r.cq = append(r.cq, p.cqe)
		r.owner = append(r.owner, p)
	}
	r.backlog = r.backlog[:copy(r.backlog, r.backlog[n:])]
}

// again repeats the completion of an operation that is over. Its user data must not be in use
// again; the user is responsible for that.
func (r *Ring) again(c uring.CQE) {
	if len(r.k.live.byData[c.UserData]) > 0 {
		return
	}
	switch r.k.order.IntN(4) {
	case 0:
		c.UserData = r.k.order.Uint64() // of no operation
	case 1:
		c.Res = -int32(syscall.ECANCELED)
	case 2:
		c.Flags |= uring.CQEMore
	}
	r.k.trace.add(event{what: "stale", ring: r.id, ud: c.UserData, res: c.Res})
	r.push(posted{cqe: c})
}

// CQOverflow returns the number of Reap calls that found overflowed completions.
func (r *Ring) CQOverflow() uint32 { return r.overflown }

// push makes a completion appear. The caller holds mu.
func (r *Ring) push(p posted) {
	if r.closed {
		return
	}
	if !p.overflow && !r.full() {
		r.cq = append(r.cq, p.cqe)
		r.owner = append(r.owner, p)
	} else {
		r.backlog = append(r.backlog, p)
		r.k.trace.count("overflow")
	}
	r.signal()
}

// full reports whether the next completion overflows. The caller holds mu.
func (r *Ring) full() bool { return len(r.cq) >= r.o.CQEntries || len(r.backlog) > 0 }

// signal wakes the parker. The caller holds mu.
func (r *Ring) signal() {
	r.arrived.Broadcast()
	if r.park != nil {
		r.park.signal()
	}
}

// Close frees the ring. Operations in flight are then a violation, unless the ring has failed. In
// that case the kernel ends them some time later, and uses their memory until then.
func (r *Ring) Close() error {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if r.closed {
		return nil
	}
	r.k.closing(r)
	return nil
}

// Left returns the number of operations with a tag that were in flight when the ring was closed. It
// can only be positive for a failed ring.
func (r *Ring) Left() int {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.left
}

// String describes the content of the queues.
func (r *Ring) String() string {
	return fmt.Sprintf("%d entries taken, %d completions", r.head.Load(), len(r.cq))
}

// RegisterBuffersSparse makes a table of n empty slots for registered buffers.
func (r *Ring) RegisterBuffersSparse(n int) error {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if _, errno := r.sparse(n); errno != 0 {
		return errno
	}
	return nil
}

// UpdateBuffers replaces registered buffers. Tags are not simulated.
func (r *Ring) UpdateBuffers(first int, bufs [][]byte, _ ...uint64) (int, error) {
	to := make([]span, len(bufs))
	for i, p := range bufs {
		to[i] = span{sys.SliceAddr(p), uint64(len(p))}
	}
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	n, errno := r.update(first, to)
	if errno != 0 {
		return 0, errno
	}
	return n, nil
}

// silence does nothing: a direct ring has no descriptor that would stay readable.
func (r *Ring) silence() {}

// take takes one SQE.
func (r *Ring) take() *op {
	head := r.head.Load()
	o := &op{ring: r, e: *r.sqes[int(head)%len(r.sqes)].Raw()}
	r.head.Store(head + 1)
	return o
}
