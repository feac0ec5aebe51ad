// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

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
	ringBase
	o RingOptions

	sqes  []uring.SQE
	tail  uint32        // of the submission side: entries handed out
	shown atomic.Uint32 // tail as the kernel sees it
	head  atomic.Uint32 // entries taken

	reaped    uint64 // of the completion side
	overflown uint32 // of the completion side

	// Guarded by the kernel's mu.
	cq        []uring.CQE
	owner     []posted // of the completions in cq
	overflows uint32
	waits     uint64
	wakes     uint64
	waiting   bool
	interrupt bool
	wake      *object
	wakeBuf   []byte
	park      *Parker
}

// Open makes a ring.
func (k *Kernel) Open(o RingOptions) *Ring {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := &Ring{ringBase: ringBase{k: k, id: len(k.rings), pinned: o.Pinned, groups: make(map[uint16]*group)}, o: o, sqes: make([]uring.SQE, o.Entries)}
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
	return r.k.submit(r, min(n, int(r.shown.Load()-r.head.Load())))
}

// SubmitNoWait is Submit.
func (r *Ring) SubmitNoWait() (int, error) { return r.Submit() }

// Submitter returns a thread, which is always the same: a simulated operation that is
// cancelled without a request is one whose thread has exited.
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
		if r.failed { // they cannot be asked for
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
		c.UserData = r.k.order.Uint64() // of no operation
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
	if r.closed || r.failed && r.o.Pinned { // its task work is not run any more
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

// signal wakes who waits for completions. The caller holds mu.
func (r *Ring) signal() {
	r.arrived.Broadcast()
	if r.park != nil {
		r.park.signal()
	}
}

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
	r.k.closing(r)
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

// String returns what the queues hold.
func (r *Ring) String() string {
	return fmt.Sprintf("%d entries taken, %d completions, waiting %v", r.head.Load(), len(r.cq), r.waiting)
}

// silence has nothing to do.
func (r *Ring) silence() {}

// take takes one entry.
func (r *Ring) take() *op {
	head := r.head.Load()
	o := &op{ring: r, e: *r.sqes[int(head)%len(r.sqes)].Raw()}
	r.head.Store(head + 1)
	return o
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
	n, err := k.submit(r, published)
	if err != nil || n < published || o.Count == 0 {
		return n, err
	}
	r.wait(o)
	if n == 0 && r.failed {
		return 0, syscall.EBADF
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
	if d.hit(k.o.Faults.Return) || happens(k.o.Plan.Wait) {
		k.soon(d.IntN(20), stop)
	}
	var timer *time.Timer
	if o.Timeout > 0 {
		timer = k.later(o.Timeout, stop)
	}
	r.waiting = true
	for len(r.cq)+len(r.backlog) < o.Count && !r.failed && !r.interrupt && !r.closed {
		r.arrived.Wait()
	}
	r.waiting = false
	if timer != nil {
		timer.Stop()
	}
}
