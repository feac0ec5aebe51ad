// SPDX-License-Identifier: MIT

package uring

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Resize gives the ring new queues with room for the given numbers of entries,
// keeping what they hold; 0 leaves a size as it is. Entries that [Ring.SQE]
// handed out must be filled; their memory is gone afterwards. No other goroutine
// may use the ring meanwhile. The limit of [Ring.DeferCQHead] shrinks with the CQ.
//
// The queues must have room for the entries and completions that wait in them, and the
// CQ must not become the smaller one (EOVERFLOW, EINVAL; the ring stays as it was). It
// needs DeferTaskrun, the issuing thread (EEXIST), memory of the kernel instead of
// NoMmap, and Linux 6.13; otherwise Resize returns EINVAL. If the new queues cannot be
// mapped, the ring is closed. (6.13)
func (r *Ring) Resize(sqEntries, cqEntries uint32) error {
	switch {
	case r.mem == nil:
		return sys.Error("resize a closed ring", syscall.EBADF)
	case r.setup&SetupNoMmap != 0:
		return sys.Error("resize a ring in memory of its own", syscall.EINVAL)
	}
	place, err := r.arrayPlace()
	if err != nil {
		return err
	}
	p := &abi.Params{SqEntries: sqEntries, CqEntries: cqEntries, Flags: abi.IORING_SETUP_CQSIZE}
	if sqEntries == 0 {
		p.SqEntries = r.sq.entries
	}
	if cqEntries == 0 {
		p.CqEntries = r.cq.entries
	}
	// Entries handed out but not yet flushed live past the tail that the
	// kernel copies up to.
	r.sq.tail.Store(r.sq.next)
	r.cq.releaseHead()
	if _, err = r.register(OpRegisterResizeRings, sys.Pointer(p), 1); err != nil {
		return err
	}
	if p.SqOff.Array == 0 {
		// The kernel fills in all other offsets.
		p.SqOff.Array = place(p.CqOff.Cqes, p.CqEntries)
	}
	mem, err := r.mapRings(p)
	if err != nil {
		return errors.Join(err, r.Close())
	}
	sq, cq, old := r.sq, r.cq, r.mem
	r.mem = mem
	r.bind(p)
	r.sq.copyFrom(&sq)
	r.cq.copyFrom(&cq)
	r.DeferCQHead(int(r.cq.deferMost)) // at most half of the CQ
	return unmap(old)
}

// arrayPlace returns the rule by which the kernel places the SQ's index array
// after a CQ: the one that explains where it is now.
func (r *Ring) arrayPlace() (func(cqes, entries uint32) uint32, error) {
	if r.setup&SetupNoSQArray != 0 {
		return func(uint32, uint32) uint32 { return 0 }, nil
	}
	line := uint32(cacheLine())
	size := uint32(r.cqeSize())
	after := func(cqes, entries uint32) uint32 {
		return (cqes + entries*size + line - 1) / line * line
	}
	// With CQE32, kernels up to 6.18 double what lies before the CQ, too.
	doubled := func(cqes, entries uint32) uint32 { return after(2*cqes, entries) }
	switch {
	case r.arrayOff == after(r.cqesOff, r.cq.entries):
		return after, nil
	case r.setup&SetupCQE32 != 0 && r.arrayOff == doubled(r.cqesOff, r.cq.entries):
		return doubled, nil
	}
	return nil, unsupported("Resize does not know how this kernel lays out a ring: set NoSQArray")
}

// The kernel copies what the queues hold, but first releases got it wrong for
// 128-byte entries and 32-byte completions, and it copies nothing when a counter
// wraps around between head and tail. (6.18.44 is right about the first two;
// TestCopyQueues checks ours.) The process owns those places until it moves a
// counter, so it may copy them again.

// copyFrom copies the entries that wait in old.
func (s *sq) copyFrom(old *sq) {
	for i := old.head.Load(); i != old.tail.Load(); i++ {
		for half := range uint32(1) << s.shift {
			s.sqes[(i&s.mask)<<s.shift+half] = old.sqes[(i&old.mask)<<old.shift+half]
		}
	}
}

// copyFrom copies the completions that wait in old.
func (c *cq) copyFrom(old *cq) {
	for i := old.next; i != old.tail.Load(); i++ {
		for half := range uint32(1) << c.shift {
			c.cqes[(i&c.mask)<<c.shift+half] = old.cqes[(i&old.mask)<<old.shift+half]
		}
	}
}
