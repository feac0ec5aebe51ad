// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// CQE is a completion: the user data of the entry, its result (a count, a
// descriptor, or a negative errno) and flags.
type CQE abi.CQE

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

// Has says whether all of the given flags are set.
func (c CQE) Has(f CQEFlags) bool { return CQEFlags(c.Flags)&f == f }

// BufferID returns the provided buffer that holds the data, when CQEBuffer is
// set.
func (c CQE) BufferID() uint16 { return uint16(c.Flags >> abi.IORING_CQE_BUFFER_SHIFT) }

// Reap copies completions into dst, frees their places in the CQ, and returns
// how many there were, without waiting. It fetches completions that overflowed
// or that wait for task work, which enters the kernel. Of a 32-byte completion
// it keeps the first half: use [Ring.ReapBig] for the rest.
func (r *Ring) Reap(dst []CQE) int {
	c := &r.cq
	n := 0
	for {
		n += c.drain(dst[n:])
		if n == len(dst) || !r.flushNeeded() || !r.flushCQ() {
			return n
		}
	}
}

// drain copies what the CQ holds.
func (c *cq) drain(dst []CQE) int {
	head, tail := c.next, c.tail.Load()
	n := 0
	if !c.mixed { // the hot path
		n = int(min(tail-head, uint32(len(dst))))
		for i := range dst[:n] {
			dst[i] = CQE(c.cqes[(head&c.mask)<<c.shift])
			head++
		}
	} else {
		for n < len(dst) && head != tail {
			e := c.cqes[head&c.mask]
			head += width(e)
			if e.Flags&abi.IORING_CQE_F_SKIP == 0 {
				dst[n] = CQE(e)
				n++
			}
		}
	}
	if head != c.next {
		c.next = head
		c.head.Store(head)
	}
	return n
}

// width returns how many places an entry of a mixed CQ takes.
func width(e abi.CQE) uint32 {
	if e.Flags&abi.IORING_CQE_F_32 != 0 {
		return 2
	}
	return 1
}

// ReapBig is [Ring.Reap] with the second half of 32-byte completions.
func (r *Ring) ReapBig(dst []BigCQE) int {
	c := &r.cq
	n := 0
	for {
		head, tail := c.next, c.tail.Load()
		for n < len(dst) && head != tail {
			at := (head & c.mask) << c.shift
			e := c.cqes[at]
			big := c.shift == 1
			if c.mixed {
				big = width(e) == 2
				head += width(e)
			} else {
				head++
			}
			if e.Flags&abi.IORING_CQE_F_SKIP != 0 {
				continue
			}
			dst[n] = BigCQE{CQE: CQE(e)}
			if big {
				x := c.cqes[at+1]
				dst[n].Big = [2]uint64{x.UserData, uint64(uint32(x.Res)) | uint64(x.Flags)<<32}
			}
			n++
		}
		if head != c.next {
			c.next = head
			c.head.Store(head)
		}
		if n == len(dst) || !r.flushNeeded() || !r.flushCQ() {
			return n
		}
	}
}

// Ready returns how many places of the CQ are taken, without entering the
// kernel. On a mixed ring a 32-byte completion takes two.
func (r *Ring) Ready() int { return int(r.cq.tail.Load() - r.cq.next) }

// flushNeeded says whether completions wait in the kernel.
func (r *Ring) flushNeeded() bool {
	if r.setup&SetupIOPoll != 0 {
		return r.cq.tail.Load() == r.cq.next // only an enter polls the device
	}
	return r.sq.flags.Load()&(abi.IORING_SQ_CQ_OVERFLOW|abi.IORING_SQ_TASKRUN) != 0
}

// flushCQ makes the kernel fill the CQ and says whether anything came.
func (r *Ring) flushCQ() bool {
	r.cq.flushes++
	_, _ = sys.EnterRaw(r.enterFD, 0, 0, abi.IORING_ENTER_GETEVENTS|r.enterFlags)
	return r.cq.tail.Load() != r.cq.next
}
