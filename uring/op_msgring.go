// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// MsgRing posts a completion with the given user data and result in another
// ring, or in this one. The fixed file table takes no rings, so that target is
// an ordinary descriptor. EBADFD means that target is not a ring, or a disabled
// one, EOVERFLOW that its CQ is full and the kernel had no memory to keep the
// completion. (5.18)
func (e *SQE) MsgRing(target FD, userData uint64, res int32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_DATA, Len: uint32(res)}}
	return e
}

// MsgRingFlags is [SQE.MsgRing] that sets the completion's flags too. CQESkip and
// CQE32 must not be among them: a target with CQEMixed acts on them. (6.3)
func (e *SQE) MsgRingFlags(target FD, userData uint64, res int32, flags CQEFlags) *SQE {
	e.MsgRing(target, userData, res)
	e.raw.OpFlags, e.raw.FileIndex = abi.IORING_MSG_RING_FLAGS_PASS, uint32(flags)
	return e
}

// MsgRingFD sends a slot of this ring's fixed file table to a slot of another
// ring, which gets a completion unless silent. The result, here and there, is
// the slot's number with SlotAuto, else 0. EBADF means that the source slot is
// empty, EINVAL that both rings are one. (6.0)
func (e *SQE) MsgRingFD(target FD, source int, slot Slot, userData uint64, silent bool) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_SEND_FD, Addr3: uint64(source), FileIndex: slot.index()}}
	if silent {
		e.raw.OpFlags = abi.IORING_MSG_RING_CQE_SKIP
	}
	return e
}
