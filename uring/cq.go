// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// CQE is a completion.
type CQE struct {
	UserData uint64 // of the entry
	Res      int32  // a count, a descriptor, or a negative errno: see [CQE.Err]
	Flags    CQEFlags
}

// BigCQE is a completion with the 16 bytes that CQE32 and CQEMixed rings may
// add; Big is zero for an ordinary one.
type BigCQE struct {
	CQE
	Big [2]uint64
}

// Err returns the error of a failed operation, nil when Res is not negative.
// It is an errno: compare with errors.Is.
func (c CQE) Err() error {
	if c.Res >= 0 {
		return nil
	}
	return syscall.Errno(-c.Res)
}

// Errno returns the errno of a failed operation, 0 otherwise.
func (c CQE) Errno() syscall.Errno { return errnoOf(c.Res) }

// errnoOf decodes a result of the kernel.
func errnoOf(res int32) syscall.Errno {
	if res >= 0 {
		return 0
	}
	return syscall.Errno(-res)
}

// Has reports whether all of the given flags are set.
func (c CQE) Has(f CQEFlags) bool { return c.Flags&f == f }

// BufferID returns the provided buffer that holds the data, when CQEBuffer is
// set.
func (c CQE) BufferID() uint16 { return uint16(c.Flags >> abi.IORING_CQE_BUFFER_SHIFT) }

// Reap copies completions into dst, frees their slots in the CQ, and returns their
// number. It does not wait. It fetches completions that overflowed or that wait for
// task work, which enters the kernel; task work of a ring with DeferTaskrun runs on the
// issuing thread only. Of a 32-byte completion it keeps the first half: use
// [Ring.ReapBig] for the rest.
func (r *Ring) Reap(dst []CQE) int {
	n := r.cq.drain(dst)
	if n == 0 || r.setup&SetupSQPoll != 0 {
		r.cq.calls.Next() // the caller may be busy without a system call
	}
	if n == len(dst) || !r.flushNeeded() {
		return n
	}
	return n + r.reapHidden(dst[n:])
}

// reapHidden reaps what waits in the kernel.
func (r *Ring) reapHidden(dst []CQE) int {
	n := 0
	for n < len(dst) && r.flushNeeded() && r.flushCQ() {
		n += r.cq.drain(dst[n:])
	}
	return n
}

// ReapBig is [Ring.Reap] with the second half of 32-byte completions.
func (r *Ring) ReapBig(dst []BigCQE) int {
	n := 0
	for {
		n += r.cq.drainBig(dst[n:])
		if n == len(dst) || !r.flushNeeded() || !r.flushCQ() {
			return n
		}
	}
}

// drain copies what the CQ holds.
func (c *cq) drain(dst []CQE) int {
	if c.plain == nil {
		return c.drainHalves(dst)
	}
	if ready := c.tail.Load() - c.next; uint64(ready) < uint64(len(dst)) {
		dst = dst[:ready]
	}
	plain, mask, head := c.plain, c.mask, c.next
	var more CQEFlags
	for i := range dst {
		e := plain[head&mask]
		more += e.Flags & CQEMore
		dst[i] = e
		head++
	}
	c.ended += uint32(len(dst)) - uint32(more/CQEMore)
	c.release(head)
	return len(dst)
}

// drainHalves is drain where a completion can take two places: it keeps the
// first.
func (c *cq) drainHalves(dst []CQE) int {
	if c.mixed {
		return c.drainMixed(len(dst), func(i int, e CQE, _ [2]uint64) { dst[i] = e })
	}
	head := c.next
	n := int(min(c.tail.Load()-head, uint32(len(dst))))
	for i := range dst[:n] {
		dst[i] = c.cqes[(head&c.mask)<<c.shift]
		c.end(dst[i])
		head++
	}
	c.release(head)
	return n
}

// drainBig copies what the CQ holds, with the second halves.
func (c *cq) drainBig(dst []BigCQE) int {
	if c.mixed {
		return c.drainMixed(len(dst), func(i int, e CQE, big [2]uint64) { dst[i] = BigCQE{e, big} })
	}
	head := c.next
	n := int(min(c.tail.Load()-head, uint32(len(dst))))
	for i := range dst[:n] {
		at := (head & c.mask) << c.shift
		dst[i] = BigCQE{CQE: c.cqes[at]}
		c.end(dst[i].CQE)
		if c.shift == 1 {
			dst[i].Big = secondHalf(c.cqes[at+1])
		}
		head++
	}
	c.release(head)
	return n
}

// drainMixed takes up to n completions out of a mixed CQ and hands them to put.
func (c *cq) drainMixed(n int, put func(i int, e CQE, big [2]uint64)) int {
	head, tail := c.next, c.tail.Load()
	i := 0
	for i < n && head != tail {
		e := c.take(head)
		head++
		var big [2]uint64
		// The second half follows, in the next place: Resize can make that
		// the first one. It appears together with the first half.
		if e.Flags&abi.IORING_CQE_F_32 != 0 && head != tail {
			big = secondHalf(c.take(head))
			head++
		}
		if e.Flags&abi.IORING_CQE_F_SKIP == 0 {
			put(i, e, big)
			c.end(e)
			i++
		}
	}
	c.release(head)
	return i
}

// end counts a completion after which none of the same entry follows.
func (c *cq) end(e CQE) {
	if e.Flags&CQEMore == 0 {
		c.ended++
	}
}

// take reads a place of a mixed CQ and turns it into filler: when a 32-byte
// completion meets the end of a full CQ, Linux 6.18 (6.18.44) moves the tail
// beyond a place that it then does not write. The old completion in that place must
// not be returned again. TestOverflowBig fails without this.
func (c *cq) take(at uint32) CQE {
	e := &c.cqes[at&c.mask]
	old := *e
	e.Flags = abi.IORING_CQE_F_SKIP
	return old
}

// secondHalf returns the 16 bytes that a 32-byte completion has in its second
// place, as two words.
func secondHalf(x CQE) [2]uint64 {
	return [2]uint64{x.UserData, words(uint32(x.Res), uint32(x.Flags))}
}

// release returns the slots before head to the kernel, except the deferred ones.
func (c *cq) release(head uint32) {
	if head != c.next {
		c.deferred = min(c.deferred+head-c.next, c.deferMost)
		c.next = head
		sys.StoreRelease(c.head, head-c.deferred)
	}
}

// Ready returns how many slots of the CQ are taken, without entering the kernel. On a
// mixed ring a 32-byte completion takes two slots, and filler may take one.
func (r *Ring) Ready() int { return int(r.cq.tail.Load() - r.cq.next) }

// flushNeeded reports whether completions wait in the kernel.
func (r *Ring) flushNeeded() bool {
	if r.setup&SetupIOPoll != 0 {
		return r.cq.tail.Load() == r.cq.next // only an enter polls the device
	}
	return r.sq.flags.Load()&(abi.IORING_SQ_CQ_OVERFLOW|abi.IORING_SQ_TASKRUN) != 0
}

// flushCQ makes the kernel fill the CQ and reports whether anything came. Its
// errors need no report here: lost completions are counted (CQDropped), and on
// a wrong thread every other call fails too.
func (r *Ring) flushCQ() bool {
	r.cq.flushes++
	r.noteOverflow()
	r.cq.calls.Next()
	_, _ = sys.EnterRaw(r.enterFD, 0, uintptr(abi.IORING_ENTER_GETEVENTS|r.enterFlags))
	return r.cq.tail.Load() != r.cq.next
}

// noteOverflow counts an overflow that the kernel is about to end.
func (r *Ring) noteOverflow() {
	if r.sq.flags.Load()&abi.IORING_SQ_CQ_OVERFLOW != 0 {
		r.cq.overflows++
	}
}

// DeferCQHead delays returning the n most recently reaped CQ slots to the kernel; n is at
// most half of the CQ. The completions do not change, and the CQ has room for n fewer.
//
// It makes one enter run more task work. Since 6.13 an enter runs at most 20 pieces of the
// task work of a ring with DeferTaskrun, or as many as the number of completions that it
// waits for, if that is larger. A wait for more completions than there are would block. The
// deferred slots count as completions, so a wait for their number returns at once, after
// that much task work. On a ring with IOPoll DeferCQHead does nothing: there the deferred
// slots would hide that nothing has completed.
func (r *Ring) DeferCQHead(n int) {
	if r.setup&SetupIOPoll != 0 {
		return
	}
	r.cq.deferMost = uint32(min(max(n, 0), int(r.cq.entries/2)))
	if r.cq.deferred > r.cq.deferMost {
		r.cq.releaseHead()
	}
}

// DeferredCQHead returns how many CQ slots are deferred now: at most the n of
// [Ring.DeferCQHead].
func (r *Ring) DeferredCQHead() int { return int(r.cq.deferred) }

// releaseHead returns all deferred slots to the kernel.
func (c *cq) releaseHead() {
	c.deferred = 0
	c.head.Store(c.next)
}
