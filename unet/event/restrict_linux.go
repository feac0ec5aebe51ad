// SPDX-License-Identifier: MIT

package event

import "github.com/ringside-io/ringside/uring"

// ringRestrictions are what a loop does with its ring.
var ringRestrictions = uring.Restrictions{
	Ops: []uring.Op{uring.OpAccept, uring.OpRecv, uring.OpSend, uring.OpAsyncCancel, uring.OpPollAdd},
	RegisterOps: []uring.RegisterOp{uring.OpRegisterRingFDs, uring.OpUnregisterRingFDs,
		uring.OpRegisterPBufRing, uring.OpUnregisterPBufRing, uring.OpRegisterPBufStatus},
	FlagsAllowed: uring.SQEBufferSelect,
}
