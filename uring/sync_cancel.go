// SPDX-License-Identifier: MIT

package uring

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

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
