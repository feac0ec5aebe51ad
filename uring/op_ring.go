// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// NopOptions make a no-op do more, for tests.
type NopOptions struct {
	// Inject makes the operation complete with Result, for example a negative
	// errno. (6.10)
	Inject bool
	Result int32
	// File makes the operation take a reference to FD. (6.13)
	File bool
	FD   FD
	// FixedBuffer makes the operation look up the registered buffer BufIndex. (6.13)
	FixedBuffer bool
	BufIndex    uint16
	// TaskWork makes the operation complete through task work. (6.16)
	TaskWork bool
	// Big makes the operation post a 32-byte completion with BigValues, on rings that
	// allow such completions. (6.18)
	Big       bool
	BigValues [2]uint64
}

// Nop does nothing; the result is 0. (5.1)
func (e *SQE) Nop() *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_NOP, Fd: -1}}
	return e
}

// NopWith is [SQE.Nop] with options, for tests. Kernels before 6.10 ignore or
// reject them.
func (e *SQE) NopWith(o NopOptions) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_NOP, Fd: -1}}
	if o.Inject {
		e.raw.OpFlags |= abi.IORING_NOP_INJECT_RESULT
		e.raw.Len = uint32(o.Result)
	}
	if o.File {
		e.raw.OpFlags |= abi.IORING_NOP_FILE
		e.raw.Fd = o.FD.n
		if o.FD.fixed {
			e.raw.OpFlags |= abi.IORING_NOP_FIXED_FILE
		}
	}
	if o.FixedBuffer {
		e.raw.OpFlags |= abi.IORING_NOP_FIXED_BUFFER
		e.raw.BufIndex = o.BufIndex
	}
	if o.TaskWork {
		e.raw.OpFlags |= abi.IORING_NOP_TW
	}
	if o.Big {
		e.raw.OpFlags |= abi.IORING_NOP_CQE32
		e.raw.Off, e.raw.Addr = o.BigValues[0], o.BigValues[1]
	}
	return e
}

// MsgRing posts a completion with the given user data and result in another
// ring, or in this one. The fixed file table cannot hold rings, so target is
// an ordinary descriptor. EBADFD means that target is not a ring or is disabled,
// EOVERFLOW that its CQ is full and the kernel had no memory to keep the
// completion. (5.18)
func (e *SQE) MsgRing(target FD, userData uint64, res int32) *SQE {
	e.there()
	noteMessage(target)
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_DATA, Len: uint32(res)}}
	return e
}

// MsgRingFlags is like [SQE.MsgRing] and sets the completion's flags, too. CQESkip and
// CQE32 must not be among them: a target with CQEMixed acts on them. (6.3)
func (e *SQE) MsgRingFlags(target FD, userData uint64, res int32, flags CQEFlags) *SQE {
	e.MsgRing(target, userData, res)
	e.raw.OpFlags, e.raw.FileIndex = abi.IORING_MSG_RING_FLAGS_PASS, uint32(flags)
	return e
}

// MsgRingFD sends the file in a slot of this ring's fixed file table to a slot of
// another ring, which gets a completion unless silent. The result of both completions is
// the slot's number with SlotAuto, otherwise 0. EBADF means that the source slot is
// empty, EINVAL that both rings are the same. (6.0)
func (e *SQE) MsgRingFD(target FD, source int, slot Slot, userData uint64, silent bool) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MSG_RING, Flags: target.flags(), Fd: target.n,
		Off: userData, Addr: abi.IORING_MSG_SEND_FD, Addr3: uint64(source), FileIndex: slot.index()}}
	if silent {
		e.raw.OpFlags = abi.IORING_MSG_RING_CQE_SKIP
	} else {
		noteMessage(target)
	}
	return e
}

// ProvideBuffers gives n buffers of size bytes each, which lie one after the
// other in p, to a group. Their ids begin with first. This is the older form;
// prefer [Ring.NewBufRing]. p belongs to the kernel until each buffer was returned by a
// completion or removed. Buffers that do not fit into p are left out. (5.7)
func (e *SQE) ProvideBuffers(p []byte, size, n int, group, first uint16) *SQE {
	size = max(size, 0)
	n = min(n, len(p)/max(size, 1))
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_PROVIDE_BUFFERS, Fd: int32(n), Off: uint64(first),
		Addr: sys.SliceAddr(p), Len: byteCount(size), BufIndex: group}}
	return e
}

// RemoveBuffers takes up to n buffers back from a group filled by
// ProvideBuffers; the result is how many. (5.7)
func (e *SQE) RemoveBuffers(n int, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_REMOVE_BUFFERS, Fd: int32(n), BufIndex: group}}
	return e
}
