// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"math/bits"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// ring is the kernel's side of a ring of package uring. The kernel's mu guards it.
type ring struct {
	ringBase
	setup uint32
	fd    *sys.FD // an eventfd, which its user closes

	rings, entries *sys.Region
	p              abi.Params
	array          []uint32
	sqes           []uring.SQE
	cqes           []uring.CQE

	sqHead, sqTail, sqFlags, sqDropped *atomic.Uint32
	cqHead, cqTail                     *atomic.Uint32

	deferred []posted // task work that waits for an enter
	entering bool
	issuer   int // thread ID, 0 for any thread
	disabled bool
	waiting  int
	waits    uint64
}

// These are the features of the simulated kernel, and the flags that its rings may have.
const (
	kernelFeatures = abi.IORING_FEAT_SINGLE_MMAP | abi.IORING_FEAT_NODROP | abi.IORING_FEAT_SUBMIT_STABLE | abi.IORING_FEAT_RW_CUR_POS |
		abi.IORING_FEAT_CUR_PERSONALITY | abi.IORING_FEAT_FAST_POLL | abi.IORING_FEAT_POLL_32BITS | abi.IORING_FEAT_EXT_ARG |
		abi.IORING_FEAT_NATIVE_WORKERS | abi.IORING_FEAT_RSRC_TAGS | abi.IORING_FEAT_CQE_SKIP | abi.IORING_FEAT_LINKED_FILE |
		abi.IORING_FEAT_REG_REG_RING | abi.IORING_FEAT_NO_IOWAIT
	kernelSetup = abi.IORING_SETUP_CQSIZE | abi.IORING_SETUP_CLAMP | abi.IORING_SETUP_R_DISABLED | abi.IORING_SETUP_SUBMIT_ALL |
		abi.IORING_SETUP_COOP_TASKRUN | abi.IORING_SETUP_TASKRUN_FLAG | abi.IORING_SETUP_SINGLE_ISSUER | abi.IORING_SETUP_DEFER_TASKRUN |
		abi.IORING_SETUP_NO_SQARRAY
)

// These are the offsets of words in the mapping. Each has a cache line of its own.
const (
	atSQHead, atSQTail, atCQHead, atCQTail = 0, 64, 128, 192
	atSQMask, atCQMask                     = 256, 260
	atSQEntries, atCQEntries               = 264, 268
	atDropped, atSQFlags                   = 272, 276
	atCQFlags, atOverflow                  = 280, 284
	atCQEs                                 = 320
)

// Setup implements [sys.Simulator].
func (k *Kernel) Setup(entries uint32, p *abi.Params) (int, sys.SimulatedRing, syscall.Errno) {
	k.mu.Lock()
	defer k.mu.Unlock()
	const most = 1 << 15
	if entries == 0 || entries > most && p.Flags&abi.IORING_SETUP_CLAMP == 0 || p.Flags&^kernelSetup != 0 {
		return -1, nil, syscall.EINVAL
	}
	sq := ceil(min(entries, most))
	cq := 2 * sq
	if p.Flags&abi.IORING_SETUP_CQSIZE != 0 {
		cq = ceil(min(p.CqEntries, 2*most))
	}
	if k.poll.ops == nil {
		if k.poll.open() != nil {
			return -1, nil, syscall.EMFILE
		}
		k.done.Go(k.listen)
	}
	fd, err := sys.Counter()
	if err != nil {
		return -1, nil, syscall.EMFILE
	}
	r := &ring{ringBase: ringBase{k: k, id: len(k.rings), hooked: true, groups: make(map[uint16]*group)},
		setup: p.Flags, fd: fd, disabled: p.Flags&abi.IORING_SETUP_R_DISABLED != 0}
	r.arrived = sync.NewCond(&k.mu)
	r.lay(sq, cq, p)
	if !r.disabled {
		r.own()
	}
	k.rings = append(k.rings, r)
	k.trace.count("setup")
	return fd.Int(), r, 0
}

func ceil(n uint32) uint32 { return 1 << bits.Len32(max(n, 1)-1) }

// lay lays out the queues and returns their offsets.
func (r *ring) lay(sq, cq uint32, p *abi.Params) {
	p.SqEntries, p.CqEntries, p.Features = sq, cq, kernelFeatures
	p.SqOff = abi.SQRingOffsets{Head: atSQHead, Tail: atSQTail, RingMask: atSQMask, RingEntries: atSQEntries, Flags: atSQFlags, Dropped: atDropped,
		Array: atCQEs + cq*16}
	p.CqOff = abi.CQRingOffsets{Head: atCQHead, Tail: atCQTail, RingMask: atCQMask, RingEntries: atCQEntries, Overflow: atOverflow, Cqes: atCQEs, Flags: atCQFlags}
	r.rings = sys.HeapRegion(int(p.SqOff.Array + 4*sq))
	r.entries = sys.HeapRegion(int(sq) * int(sys.Size[uring.SQE]()))
	r.p = *p
	word := r.rings.Word
	word(atSQMask).Store(sq - 1)
	word(atCQMask).Store(cq - 1)
	word(atSQEntries).Store(sq)
	word(atCQEntries).Store(cq)
	r.sqHead, r.sqTail, r.sqFlags, r.sqDropped = word(atSQHead), word(atSQTail), word(atSQFlags), word(atDropped)
	r.cqHead, r.cqTail = word(atCQHead), word(atCQTail)
	r.sqes = sys.Slice[uring.SQE](r.entries, 0, int(sq))
	r.cqes = sys.Slice[uring.CQE](r.rings, atCQEs, int(cq))
	if p.Flags&abi.IORING_SETUP_NO_SQARRAY == 0 {
		r.array = sys.Slice[uint32](r.rings, p.SqOff.Array, int(sq))
	}
}

// own makes the calling thread the issuer of a ring with SINGLE_ISSUER.
func (r *ring) own() {
	if r.setup&abi.IORING_SETUP_SINGLE_ISSUER != 0 {
		r.issuer = sys.ThreadID()
	}
}

// Map implements [sys.SimulatedRing].
func (r *ring) Map(off int64, size int) (*sys.Region, syscall.Errno) {
	region := r.rings
	switch off {
	case abi.IORING_OFF_SQ_RING, abi.IORING_OFF_CQ_RING:
	case abi.IORING_OFF_SQES:
		region = r.entries
	default:
		return nil, syscall.EINVAL
	}
	if size > region.Size() {
		return nil, syscall.EINVAL
	}
	return region, 0
}

// defers reports whether completions that are not immediate need an enter by the owner.
func (r *ring) defers() bool { return r.setup&abi.IORING_SETUP_DEFER_TASKRUN != 0 }

// ready returns the number of completions that the user can see but has not consumed.
func (r *ring) ready() uint32 { return r.cqTail.Load() - r.cqHead.Load() }

func (r *ring) full() bool { return r.ready() >= r.p.CqEntries || len(r.backlog) > 0 }

// push makes a completion appear.
func (r *ring) push(p posted) {
	if r.closed || r.failed && r.defers() { // its task work no longer runs
		r.undo(p)
		return
	}
	if r.defers() && !r.entering {
		r.deferred = append(r.deferred, p)
		r.flag(abi.IORING_SQ_TASKRUN, r.setup&abi.IORING_SETUP_TASKRUN_FLAG != 0)
	} else {
		r.complete(p)
	}
	if happens(r.k.o.Plan.Wake) {
		r.k.trace.count("late wake-up")
		r.k.later(moment, r.signal)
		return
	}
	r.signal()
}

// undo closes a connection whose task work never runs. On Linux it is not accepted before that.
func (r *ring) undo(p posted) {
	if p.accepted && r.defers() {
		_ = syscall.Close(int(p.cqe.Res))
	}
}

// complete puts a completion into the queue, or into the overflow list.
func (r *ring) complete(p posted) {
	if p.overflow || r.full() {
		r.k.trace.count("overflow")
		r.backlog = append(r.backlog, posted{cqe: p.cqe})
		r.flag(abi.IORING_SQ_CQ_OVERFLOW, true)
		return
	}
	tail := r.cqTail.Load()
	r.cqes[tail&(r.p.CqEntries-1)] = p.cqe
	r.cqTail.Store(tail + 1)
}

// catchUp runs deferred task work, up to most completions, and moves overflowed completions into
// the queue.
func (r *ring) catchUp(most int) {
	n := min(most, len(r.deferred))
	for _, p := range r.deferred[:n] {
		r.complete(p)
	}
	r.deferred = slices.Delete(r.deferred, 0, n)
	r.flag(abi.IORING_SQ_TASKRUN, len(r.deferred) > 0 && r.setup&abi.IORING_SETUP_TASKRUN_FLAG != 0)
	left := r.backlog
	r.backlog = nil
	for len(left) > 0 && !r.full() {
		r.complete(left[0])
		left = left[1:]
	}
	r.backlog = left
	r.flag(abi.IORING_SQ_CQ_OVERFLOW, len(left) > 0)
}

// flag sets or clears a flag that the user sees.
func (r *ring) flag(f uint32, on bool) {
	if on {
		r.sqFlags.Or(f)
	} else {
		r.sqFlags.And(^f)
	}
}

// signal wakes the threads that wait for completions.
func (r *ring) signal() {
	if r.closed {
		return
	}
	r.arrived.Broadcast()
	sys.Signal(r.fd)
}

// updateReadable makes the descriptor readable if and only if completions wait.
func (r *ring) updateReadable() {
	if r.ready() == 0 && len(r.deferred) == 0 && len(r.backlog) == 0 {
		r.silence()
	}
}

// silence makes the descriptor unreadable.
func (r *ring) silence() {
	if !r.closed {
		_, _ = syscall.Read(r.fd.Int(), make([]byte, 8))
	}
}

// Close implements [sys.SimulatedRing]. Operations in flight end some time later and use their
// memory until then. Only a failed ring may have any.
func (r *ring) Close() {
	k := r.k
	k.mu.Lock()
	defer k.mu.Unlock()
	if r.waiting > 0 {
		k.violation("ring %d is closed during a wait", r.id)
	}
	k.closing(r)
	for _, p := range r.deferred {
		r.undo(p)
	}
	r.fd.Detach()
	r.arrived.Broadcast()
}

// String describes the content of the queues.
func (r *ring) String() string {
	return fmt.Sprintf("%d completions, %d deferred, waiting %d", r.ready(), len(r.deferred), r.waiting)
}
