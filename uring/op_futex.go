// SPDX-License-Identifier: MIT

package uring

import (
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// FutexWait waits while *word is val, for a wake whose mask meets mask; the
// result is EAGAIN when *word is not val. A mask has 32 bits, not all 0, and any
// other is EINVAL; 0xffffffff meets every one. flags are FUTEX2_ flags
// (FUTEX2_PRIVATE is 128) and must be the waker's; the size is added. The word
// must stay reachable until the completion. (6.7)
func (e *SQE) FutexWait(word *atomic.Uint32, val uint32, mask uint64, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FUTEX_WAIT, Fd: int32(flags | futex2Size32),
		Off: uint64(val), Addr: sys.Addr(word), Addr3: mask}}
	return e
}

// FutexWake wakes up to n waiters of *word whose mask meets mask; the result
// is how many. (6.7)
func (e *SQE) FutexWake(word *atomic.Uint32, n int, mask uint64, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FUTEX_WAKE, Fd: int32(flags | futex2Size32),
		Off: uint64(n), Addr: sys.Addr(word), Addr3: mask}}
	return e
}

// FutexWaitv waits for the first of up to 128 futexes; the result is its index,
// or EAGAIN when one of the words does not hold its value. The slice is read at
// submission; the words must stay reachable until the completion. (6.7)
func (e *SQE) FutexWaitv(futexes []FutexWaitv) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FUTEX_WAITV, Addr: sys.SliceAddr(futexes), Len: count(len(futexes))}}
	return e
}

// WaitID is waitid(2): idType is P_PID (1), P_PGID (2) or P_PIDFD (3), options
// WEXITED (4) and others. info may be nil; otherwise it belongs to the
// operation until its completion. It finds children of the submitting process
// only, which any of its threads may have started. (6.7)
func (e *SQE) WaitID(idType, id int, info *Siginfo, options int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WAITID, Fd: int32(id), Off: sys.Addr(info),
		Len: uint32(idType), FileIndex: uint32(options)}}
	return e
}
