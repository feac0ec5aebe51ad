// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// TimeoutFlags modify a timeout.
type TimeoutFlags uint32

const (
	TimeoutAbs       TimeoutFlags = abi.IORING_TIMEOUT_ABS           // the time is absolute (5.5)
	TimeoutBoottime  TimeoutFlags = abi.IORING_TIMEOUT_BOOTTIME      // CLOCK_BOOTTIME (5.15)
	TimeoutRealtime  TimeoutFlags = abi.IORING_TIMEOUT_REALTIME      // CLOCK_REALTIME (5.15)
	TimeoutSuccess   TimeoutFlags = abi.IORING_TIMEOUT_ETIME_SUCCESS // expiry does not break a link (5.16)
	TimeoutMultishot TimeoutFlags = abi.IORING_TIMEOUT_MULTISHOT     // complete repeatedly (6.4)
)

// Timeout completes with ETIME after ts, or with 0 when count other
// completions have been posted; count = 0 means time only. The time is read at
// submission. With TimeoutMultishot, which excludes TimeoutAbs, it completes
// with ETIME each time ts has passed, count times, or without end if count is 0. The
// last completion has no CQEMore; a full CQ may end the timeout early. (5.4)
func (e *SQE) Timeout(ts *Timespec, count uint32, flags TimeoutFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_TIMEOUT, Fd: -1,
		Off: uint64(count), Addr: sys.Addr(ts), Len: 1, OpFlags: uint32(flags)}}
	return e
}

// TimeoutRemove ends the timeout with the given user data, which then completes
// with ECANCELED. The result is ENOENT when there is none, EALREADY when it is
// expiring. (5.5)
func (e *SQE) TimeoutRemove(userData uint64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_TIMEOUT_REMOVE, Fd: -1, Addr: userData}}
	return e
}

// TimeoutUpdate gives the timeout with the given user data a new time. The timeout keeps
// its clock and loses its count. flags may be TimeoutAbs; with any other flag the result is
// EINVAL. For a linked timeout the result is ENOENT: see [SQE.LinkTimeoutUpdate]. (5.11)
func (e *SQE) TimeoutUpdate(userData uint64, ts *Timespec, flags TimeoutFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_TIMEOUT_REMOVE, Fd: -1, Off: sys.Addr(ts), Addr: userData,
		OpFlags: uint32(flags) | abi.IORING_TIMEOUT_UPDATE}}
	return e
}

// LinkTimeoutUpdate is [SQE.TimeoutUpdate] for a linked timeout. (5.15)
func (e *SQE) LinkTimeoutUpdate(userData uint64, ts *Timespec, flags TimeoutFlags) *SQE {
	e.TimeoutUpdate(userData, ts, flags)
	e.raw.OpFlags |= abi.IORING_LINK_TIMEOUT_UPDATE
	return e
}

// LinkTimeout cancels the entry before it, which must have SQELink or SQEHardLink, after
// ts. It completes with ECANCELED when the operation completed first, with ETIME when it
// cancelled the operation, and with ENOENT or EALREADY when it was too late to cancel it.
// Only the operation's own completion has its result: a cancelled operation can still
// succeed. Both entries must be in the same submission; the result of a LinkTimeout alone
// is EINVAL. (5.5)
func (e *SQE) LinkTimeout(ts *Timespec, flags TimeoutFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_LINK_TIMEOUT, Fd: -1,
		Addr: sys.Addr(ts), Len: 1, OpFlags: uint32(flags)}}
	return e
}

// FutexWait waits while *word is val, for a wake whose mask shares a bit with mask; the
// result is EAGAIN when *word is not val. A mask has 32 bits, not all 0, otherwise the
// result is EINVAL; 0xffffffff matches every mask. flags are FUTEX2_ flags
// (FUTEX2_PRIVATE is 128) and must equal the waker's; FutexWait adds the size. The word
// must stay reachable until the completion. (6.7)
func (e *SQE) FutexWait(word *atomic.Uint32, val uint32, mask uint64, flags uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FUTEX_WAIT, Fd: int32(flags | futex2Size32),
		Off: uint64(val), Addr: sys.Addr(word), Addr3: mask}}
	return e
}

// FutexWake wakes up to n waiters of *word whose mask shares a bit with mask; the result
// is their number. (6.7)
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
// operation until its completion. It finds only children of the submitting process,
// started by any of its threads. (6.7)
func (e *SQE) WaitID(idType, id int, info *Siginfo, options int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WAITID, Fd: int32(id), Off: sys.Addr(info),
		Len: uint32(idType), FileIndex: uint32(options)}}
	return e
}

// Siginfo is room for the siginfo_t that [SQE.WaitID] fills; see waitid(2). Its
// methods read the fields that waitid defines.
type Siginfo struct {
	b [128]byte
}

// fields is the offset of the union behind the three leading ints.
const fields = 12 + (strconv.IntSize/32-1)*4

func (s *Siginfo) int(off int) int { return int(int32(binary.NativeEndian.Uint32(s.b[off:]))) }

// Signo returns SIGCHLD when a child was found, otherwise 0.
func (s *Siginfo) Signo() int { return s.int(0) }

// Code returns how the child changed: CLD_EXITED (1), CLD_KILLED (2) and so on.
func (s *Siginfo) Code() int { return s.int(8) }

// PID returns the child's process id.
func (s *Siginfo) PID() int { return s.int(fields) }

// UID returns the child's real user id.
func (s *Siginfo) UID() int { return s.int(fields + 4) }

// Status returns the exit code, or the signal that killed the child.
func (s *Siginfo) Status() int { return s.int(fields + 8) }
