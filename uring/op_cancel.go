// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// CancelOptions select the operations that [SQE.CancelWith] and [Ring.SyncCancel] cancel: an
// operation must match every criterion that is set.
type CancelOptions struct {
	// UserData is the user data of the operation. It is compared if none of ByFD, ByOp
	// and Any is set. With ByFD or ByOp it is compared if ByUserData is set, too (6.6).
	UserData   uint64
	ByUserData bool
	ByFD       bool // operations on FD (5.19; a slot of the fixed file table 6.0)
	FD         FD
	// ByOp names the operations with the opcode Op. Older kernels (6.12) do not compare
	// the opcode of futex and waitid operations: they find such operations with user
	// data 0, under any opcode. (6.6)
	ByOp bool
	Op   Op
	Any  bool // every operation of the ring (5.19)
	All  bool // every match instead of the first; Any implies it (5.19)
}

// encode returns the flags and the descriptor that an SQE and a registration have in common.
func (o *CancelOptions) encode() (flags uint32, fd int32) {
	fd = -1
	if o.ByFD {
		fd = o.FD.n
		flags |= abi.IORING_ASYNC_CANCEL_FD
		if o.FD.fixed {
			flags |= abi.IORING_ASYNC_CANCEL_FD_FIXED
		}
	}
	if o.ByUserData {
		flags |= abi.IORING_ASYNC_CANCEL_USERDATA
	}
	if o.ByOp {
		flags |= abi.IORING_ASYNC_CANCEL_OP
	}
	if o.Any {
		flags |= abi.IORING_ASYNC_CANCEL_ANY
	}
	if o.All {
		flags |= abi.IORING_ASYNC_CANCEL_ALL
	}
	return flags, fd
}

// Cancel requests the end of the operation with the given user data. The result is not
// negative when it was found and cancelled (0; for a futex or waitid some
// kernels count 1), ENOENT when not found, EALREADY when it had started and may
// or may not end early. Whatever the result, the operation itself ends with its
// own completion, and its memory is in use until then. ENOENT does not mean that it has
// ended: kernels such as 6.1 miss an operation that a worker thread is just starting, so
// cancel again until its completion arrives. A cancelled operation completes with
// ECANCELED. One that a worker thread was already running is interrupted and completes with
// EINTR or, where the kernel does not translate it (open), with 512 (ERESTARTSYS). Worker
// threads are interrupted for other reasons, too: submit an operation again if it fails in
// this way without a cancellation. (5.5)
func (e *SQE) Cancel(userData uint64) *SQE {
	return e.CancelWith(CancelOptions{UserData: userData})
}

// CancelWith is [SQE.Cancel] of the operations that o names. With All and Any the result
// is their number, which may be 0.
func (e *SQE) CancelWith(o CancelOptions) *SQE {
	e.there()
	flags, fd := o.encode()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ASYNC_CANCEL, Fd: fd, Addr: o.UserData, OpFlags: flags}}
	if o.ByOp {
		e.raw.Len = uint32(o.Op)
	}
	return e
}

// SyncCancel cancels an operation and waits until it has ended: its completion
// is then in the CQ, or with DeferTaskrun arrives with the next wait. timeout bounds
// the wait; 0 means no bound. With All or Any it cancels all matching operations that it
// can and returns their number; it does not wait for those that worker threads are
// running.
//
// Errors: ENOENT when nothing matched (with All and Any that is no error), on
// 6.1 also when a worker thread was just starting the operation, which then
// continues: call again until its completion has arrived. ETIME
// when the timeout ended the wait. An interrupted wait is continued. On rings with
// SingleIssuer only the issuing thread may call it (EEXIST). (6.0)
func (r *Ring) SyncCancel(o CancelOptions, timeout time.Duration) (int, error) {
	arg := o.arg(timeout)
	deadline := time.Now().Add(timeout)
	interrupted := false
	for {
		n, errno := r.registerOnce(OpRegisterSyncCancel, sys.Pointer(arg), 1)
		switch {
		case errno == 0:
			return n, nil
		case errno == syscall.ENOENT && interrupted:
			return 0, nil // an earlier call found it, and it has ended
		case errno != syscall.EINTR:
			return 0, sys.Error("io_uring_register "+OpRegisterSyncCancel.String(), errno)
		}
		interrupted = true
		if timeout != 0 {
			arg.Timeout = timespec(max(time.Until(deadline), 1))
		}
	}
}

// arg encodes the options of a registration.
func (o *CancelOptions) arg(timeout time.Duration) *abi.SyncCancelReg {
	flags, fd := o.encode()
	arg := &abi.SyncCancelReg{Addr: o.UserData, Fd: fd, Flags: flags, Timeout: abi.Timespec{Sec: -1, Nsec: -1}}
	if timeout != 0 {
		arg.Timeout = timespec(max(timeout, 1))
	}
	if o.ByOp {
		arg.Opcode = uint8(o.Op)
	}
	return arg
}
