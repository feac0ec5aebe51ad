// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// CancelFlags modify a cancellation.
type CancelFlags uint32

const (
	CancelAll CancelFlags = abi.IORING_ASYNC_CANCEL_ALL // every match; the result is their number, maybe 0 (5.19)
)

// Cancel asks to end the operation with the given user data. The result is not
// negative when it was found and cancelled (0; for a futex or waitid some
// kernels count 1), ENOENT when not found, EALREADY when it had started and may
// or may not end early. Whatever the result, the operation itself ends with its
// own completion, and its memory is in use until then. ENOENT does not mean that it has
// ended: kernels such as 6.1 miss an operation that a worker thread is just starting, so
// cancel again while its completion is missing. A cancelled operation completes with
// ECANCELED. One that a worker thread was already running is interrupted and completes with
// EINTR or, where the kernel does not translate it (open), with 512 (ERESTARTSYS). Worker
// threads are interrupted for other reasons, too: submit an operation again that fails so
// without a cancellation. (5.5)
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

// SyncCancelOptions name what [Ring.SyncCancel] cancels.
type SyncCancelOptions struct {
	UserData uint64 // of the operation, unless a field below is set
	ByFD     bool   // operations on FD
	FD       FD
	ByOp     bool // operations with the opcode Op (6.6)
	Op       Op
	Any      bool // every operation of the ring
	All      bool // every match instead of the first
	// Timeout bounds the wait until what was found has ended; 0 means none.
	Timeout time.Duration
}

// SyncCancel cancels an operation and waits until it has ended: its completion
// is then in the CQ, or with DeferTaskrun comes with the next wait. With All or
// Any it cancels what it can and returns how many there were; it does not wait
// for those that worker threads are busy with, which may take their time.
//
// Errors: ENOENT when nothing matched (with All and Any that is no error), on
// 6.1 also when a worker thread was just taking the operation up, which then
// lives on: call again until its completion has come. ETIME
// when the timeout ended the wait. An interrupted wait goes on. On rings with
// SingleIssuer only the issuing thread may call it (EEXIST). (6.0)
func (r *Ring) SyncCancel(o SyncCancelOptions) (int, error) {
	arg := o.arg()
	deadline := time.Now().Add(o.Timeout)
	interrupted := false
	for {
		n, errno := r.registerOnce(OpRegisterSyncCancel, sys.Pointer(arg), 1)
		switch {
		case errno == 0:
			return n, nil
		case errno == syscall.ENOENT && interrupted:
			return 0, nil // it was found before, and is gone
		case errno != syscall.EINTR:
			return 0, sys.Error("io_uring_register "+OpRegisterSyncCancel.String(), errno)
		}
		interrupted = true
		if o.Timeout != 0 {
			arg.Timeout = timespec(max(time.Until(deadline), 1))
		}
	}
}

// arg encodes the options.
func (o *SyncCancelOptions) arg() *abi.SyncCancelReg {
	arg := &abi.SyncCancelReg{Addr: o.UserData, Fd: o.FD.n, Timeout: abi.Timespec{Sec: -1, Nsec: -1}}
	if o.Timeout != 0 {
		arg.Timeout = timespec(max(o.Timeout, 1))
	}
	if o.ByFD {
		arg.Flags |= abi.IORING_ASYNC_CANCEL_FD
		if o.FD.fixed {
			arg.Flags |= abi.IORING_ASYNC_CANCEL_FD_FIXED
		}
	}
	if o.ByOp {
		arg.Flags |= abi.IORING_ASYNC_CANCEL_OP
		arg.Opcode = uint8(o.Op)
	}
	if o.Any {
		arg.Flags |= abi.IORING_ASYNC_CANCEL_ANY
	}
	if o.All {
		arg.Flags |= abi.IORING_ASYNC_CANCEL_ALL
	}
	return arg
}
