// SPDX-License-Identifier: MIT

package uring

import (
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
	TimeoutMultishot TimeoutFlags = abi.IORING_TIMEOUT_MULTISHOT     // complete again and again (6.4)
)

// Timeout completes with ETIME after ts, or with 0 when count other
// completions have been posted; count = 0 means time only. The time is read at
// submission. With TimeoutMultishot, which excludes TimeoutAbs, it completes
// with ETIME each time ts has passed, count times or with count = 0 for ever; a
// completion without CQEMore is the last, which a full CQ may bring early. (5.4)
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

// TimeoutUpdate gives the timeout with the given user data another time. It keeps
// its clock and loses its count; flags may be TimeoutAbs, anything else is
// EINVAL. A linked timeout is ENOENT: see [SQE.LinkTimeoutUpdate]. (5.11)
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

// LinkTimeout cancels the entry before it, which must carry SQELink or
// SQEHardLink, after ts. It completes with ECANCELED when the operation was done
// first, with ETIME when it told it to stop, with ENOENT or EALREADY when it
// came too late for that. Only the completion of the operation tells what became
// of it: one that was told to stop can succeed all the same. Both entries must
// go into the same submission; alone it is EINVAL. (5.5)
func (e *SQE) LinkTimeout(ts *Timespec, flags TimeoutFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_LINK_TIMEOUT, Fd: -1,
		Addr: sys.Addr(ts), Len: 1, OpFlags: uint32(flags)}}
	return e
}
