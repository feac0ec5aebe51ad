// SPDX-License-Identifier: MIT

package kernelsim

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// RingOptions configure a ring.
type RingOptions struct {
	Entries   int // a power of two
	CQEntries int
	// Pinned makes a ring that one goroutine submits to and waits on, with
	// [Ring.Enter], and that others wake.
	Pinned bool
}

// Ring is a simulated ring. The rules are those of [uring.Ring]: one goroutine
// at a time on the submission side, one on the completion side. Fields that
// belong to a side are not guarded, so that the race detector sees who breaks
// the rules.
type Ring struct {
	k  *Kernel
	id int
	o  RingOptions

	sqes  []uring.SQE
	tail  uint32        // of the submission side: entries handed out
	shown atomic.Uint32 // tail as the kernel sees it
	head  atomic.Uint32 // entries taken

	reaped    uint64 // of the completion side
	overflown uint32 // of the completion side

	// Guarded by the kernel's mu.
	cq        []uring.CQE
	backlog   []posted // what overflowed
	owner     []posted // of the completions in cq
	overflows uint32
	submits   uint64 // calls, which decide their fate
	waits     uint64
	wakes     uint64
	refusing  int
	refusal   error
	arrived   *sync.Cond
	waiting   bool
	interrupt bool
	fatal     error
	closed    bool
	unparked  bool
	left      int // operations in flight at Close
	wake      *object
	wakeBuf   []byte
	park      *Parker
	bufs      map[uint16]*BufRing
}

// posted is a completion with what it takes to let it appear again.
type posted struct {
	cqe   uring.CQE
	stale bool
}

// Open makes a ring.
func (k *Kernel) Open(o RingOptions) *Ring {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &Ring{k: k, id: len(k.rings), o: o, sqes: make([]uring.SQE, o.Entries)}
	r.arrived = sync.NewCond(&k.mu)
	r.wake = k.add(isWake)
	r.wakeBuf = make([]byte, 8)
	k.rings = append(k.rings, r)
	return r
}

// SQE returns the next free entry, nil when there is none.
func (r *Ring) SQE() *uring.SQE {
	if r.SQSpace() == 0 {
		return nil
	}
	e := &r.sqes[int(r.tail)%len(r.sqes)]
	r.tail++
	return e
}

// SQSpace returns how many entries are free.
func (r *Ring) SQSpace() int { return len(r.sqes) - int(r.tail-r.head.Load()) }

// Publish shows the entries to the kernel and returns how many the next Enter has to
// take.
func (r *Ring) Publish() (int, error) {
	r.shown.Store(r.tail)
	return int(r.tail - r.head.Load()), nil
}

// Submit hands the entries to the kernel.
func (r *Ring) Submit() (int, error) {
	n, _ := r.Publish()
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.submit(n)
}

// SubmitNoWait is Submit.
func (r *Ring) SubmitNoWait() (int, error) { return r.Submit() }

// Submitter returns a thread, which is always the same: a simulated operation that is
// cancelled although nobody has asked is one whose thread has exited.
func (r *Ring) Submitter() int { return 1 }

// Exited says so.
func (r *Ring) Exited(int) (exited, sure bool) { return true, true }

// AnswersCancelled reports that each file may.
func (r *Ring) AnswersCancelled(int) bool { return true }

// Reap takes completions, also those that overflowed.
func (r *Ring) Reap(dst []uring.CQE) int {
	r.k.mu.Lock()
	n := 0
	for {
		n += r.drain(dst[n:])
		if n == len(dst) || len(r.backlog) == 0 || r.closed {
			break
		}
		r.overflows++
		if r.fatal != nil { // nobody can ask for them
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

// drain takes what the completion queue holds. The caller holds mu.
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

// refill moves what overflowed into the completion queue. The caller holds mu.
func (r *Ring) refill() {
	n := min(r.o.CQEntries-len(r.cq), len(r.backlog))
	for _, p := range r.backlog[:n] {
		r.cq = append(r.cq, p.cqe)
		r.owner = append(r.owner, p)
	}
	r.backlog = r.backlog[:copy(r.backlog, r.backlog[n:])]
}

// again lets a completion appear whose operation is over. Its user data must
// not be in use again: that is the user's side of the bargain.
func (r *Ring) again(c uring.CQE) {
	if len(r.k.live.byData[c.UserData]) > 0 {
		return
	}
	switch r.k.order.IntN(4) {
	case 0:
		c.UserData = r.k.order.Uint64() // of nobody
	case 1:
		c.Res = -int32(syscall.ECANCELED)
	case 2:
		c.Flags |= uring.CQEMore
	}
	r.k.trace.add(event{what: "stale", ring: r.id, ud: c.UserData, res: c.Res})
	r.push(posted{cqe: c})
}

// CQOverflow returns how often Reap found that completions had overflowed.
func (r *Ring) CQOverflow() uint32 { return r.overflown }

// push lets a completion appear. The caller holds mu.
func (r *Ring) push(p posted) {
	if r.closed || r.fatal != nil && r.o.Pinned { // nobody runs its task work any more
		return
	}
	if len(r.cq) < r.o.CQEntries && len(r.backlog) == 0 {
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

// signal wakes who waits for completions. The caller holds mu.
func (r *Ring) signal() {
	r.arrived.Broadcast()
	if r.park != nil {
		r.park.signal()
	}
}

// fail makes everything that enters the kernel fail. The caller holds mu.
func (r *Ring) fail() {
	r.fatal = syscall.EBADF
	r.k.trace.add(event{what: "fatal", ring: r.id})
	r.holdAll()
	r.signal()
}

// broken reports whether the ring, or its parker, has failed for good. The caller
// holds mu.
func (r *Ring) broken() bool { return r.fatal != nil || r.unparked }

// Close frees the ring. What is in flight then is a violation, unless the ring
// has failed: the kernel ends it some time later, and its memory is in use
// until then.
func (r *Ring) Close() error {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	if r.closed {
		return nil
	}
	if r.waiting {
		r.k.violation("ring %d closed during a wait", r.id)
	}
	for _, o := range slices.Clone(r.k.live.all) {
		if o.ring != r {
			continue
		}
		if o.tag() != 0 {
			r.left++
		}
		if !o.internal() && !r.broken() {
			r.k.violation("ring %d closed with an operation in flight: %v, user data %x, tag %d", r.id, o.code(), o.sqe.Raw().UserData, o.tag())
		}
		o.leave()
		if o.state == running || o.state == waiting {
			o.state = ending
			r.k.spread(1+r.k.order.IntN(20), o.scribble, func() { r.k.finish(o, -int32(syscall.ECANCELED)) })
		}
	}
	r.closed = true
	r.k.trace.add(event{what: "close", ring: r.id})
	return nil
}

// Left returns how many operations with a tag were in flight when the ring was
// closed, which only a ring that has failed may be.
func (r *Ring) Left() int {
	r.k.mu.Lock()
	defer r.k.mu.Unlock()
	return r.left
}

// Wake makes a wait, or the next one, return: it completes the entry that Rearm
// has built.
func (r *Ring) Wake() {
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	d := k.dice(ofWake+uint64(r.id)<<33, r.wakes)
	r.wakes++
	ring := func() {
		r.wake.sent++
		k.arrived(r.wake)
	}
	switch {
	case k.loseWake(ring):
	case d.hit(k.o.Faults.LateWake) || k.o.Plan.Wake != nil && k.o.Plan.Wake():
		k.trace.count("late wake-up")
		k.later(d.briefly(), ring)
	default:
		ring()
	}
}

// Rearm builds the entry that completes after Wake.
func (r *Ring) Rearm(e *uring.SQE) { e.Read(uring.Fd(r.wake.fd), r.wakeBuf, 0) }

const linkFlags = abi.IOSQE_IO_LINK | abi.IOSQE_IO_HARDLINK
