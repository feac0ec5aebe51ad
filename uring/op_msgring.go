// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// MsgRing posts a completion with the given user data and result in another
// ring. The target must not be disabled; EOVERFLOW means its CQ is full.
// (5.18)
func (e *SQE) MsgRing(target FD, userData uint64, res int32) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_DATA, Len: uint32(res)}
	return e
}

// MsgRingFlags is [SQE.MsgRing] that sets the completion's flags too. (6.3)
func (e *SQE) MsgRingFlags(target FD, userData uint64, res int32, flags CQEFlags) *SQE {
	e.MsgRing(target, userData, res)
	e.OpFlags, e.FileIndex = abi.IORING_MSG_RING_FLAGS_PASS, uint32(flags)
	return e
}

// MsgRingFD sends a slot of this ring's fixed file table to a slot of another
// ring, which gets a completion unless silent. (6.0)
func (e *SQE) MsgRingFD(target FD, source int, slot Slot, userData uint64, silent bool) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_SEND_FD, Addr3: uint64(source), FileIndex: slot.index()}
	if silent {
		e.OpFlags = abi.IORING_MSG_RING_CQE_SKIP
	}
	return e
}
