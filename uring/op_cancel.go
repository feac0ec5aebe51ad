// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// CancelFlags modify a cancellation.
type CancelFlags uint32

const (
	CancelAll CancelFlags = abi.IORING_ASYNC_CANCEL_ALL // every match; the result is their number, maybe 0 (5.19)
)

// Cancel asks to end the operation with the given user data. The result is not
// negative when it was found and cancelled (0; for a futex or waitid some
// kernels count 1), ENOENT when not found, EALREADY when it had started and may
// or may not end early. Whatever the result: the operation itself ends with its
// own completion, and its memory is in use until then. Not even ENOENT says that
// it has ended: kernels such as 6.1 overlook what a worker thread is just taking
// up, so ask again while its completion is missing. What is cancelled
// completes with ECANCELED; what was already running in a worker thread is
// interrupted and completes with EINTR or, where the kernel forgets to translate
// it (open), with 512 (ERESTARTSYS). Worker threads are interrupted by other
// things, too: what nobody cancelled and failed so is to be submitted again.
// (5.5)
func (e *SQE) Cancel(userData uint64, flags CancelFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ASYNC_CANCEL, Fd: -1, Addr: userData, OpFlags: uint32(flags)}}
	return e
}

// CancelFD asks to end an operation, with CancelAll all operations, on fd.
// (5.19; a slot of the fixed file table 6.0)
func (e *SQE) CancelFD(fd FD, flags CancelFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ASYNC_CANCEL, Fd: fd.n,
		OpFlags: uint32(flags) | abi.IORING_ASYNC_CANCEL_FD}}
	if fd.fixed {
		e.raw.OpFlags |= abi.IORING_ASYNC_CANCEL_FD_FIXED
	}
	return e
}

// CancelAny asks to end every operation of the ring; the result is their number,
// with and without CancelAll. (5.19)
func (e *SQE) CancelAny(flags CancelFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ASYNC_CANCEL, Fd: -1,
		OpFlags: uint32(flags) | abi.IORING_ASYNC_CANCEL_ANY}}
	return e
}

// CancelOp asks to end an operation, with CancelAll all operations, with the
// given opcode. Older kernels (6.12) do not compare the opcode of futex and
// waitid operations: they find those with user data 0, under any opcode. (6.6)
func (e *SQE) CancelOp(op Op, flags CancelFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ASYNC_CANCEL, Fd: -1, Len: uint32(op),
		OpFlags: uint32(flags) | abi.IORING_ASYNC_CANCEL_OP}}
	return e
}

// CancelFDUserData asks to end an operation, with CancelAll all operations, on fd with the
// given user data. (6.6)
func (e *SQE) CancelFDUserData(fd FD, userData uint64, flags CancelFlags) *SQE {
	e.CancelFD(fd, flags)
	e.raw.Addr = userData
	e.raw.OpFlags |= abi.IORING_ASYNC_CANCEL_USERDATA
	return e
}

// CancelFDOp asks to end an operation, with CancelAll all operations, on fd with the given
// opcode. See [SQE.CancelOp]. (6.6)
func (e *SQE) CancelFDOp(fd FD, op Op, flags CancelFlags) *SQE {
	e.CancelFD(fd, flags)
	e.raw.Len = uint32(op)
	e.raw.OpFlags |= abi.IORING_ASYNC_CANCEL_OP
	return e
}
