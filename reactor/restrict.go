// SPDX-License-Identifier: MIT

package reactor

import (
	"slices"

	"github.com/ringside-io/ringside/uring"
)

// ownOps are what a reactor submits by itself: cancellations, deadlines, and
// what is left of chains that the kernel took in part.
var ownOps = []uring.Op{uring.OpAsyncCancel, uring.OpLinkTimeout, uring.OpNop}

// fixedOps are the forms of operations for the buffers of pools.
var fixedOps = map[uring.Op]uring.Op{uring.OpRead: uring.OpReadFixed, uring.OpWrite: uring.OpWriteFixed}

// ownRegisterOps are what files, pools, groups and cheaper calls take.
var ownRegisterOps = []uring.RegisterOp{
	uring.OpRegisterFiles, uring.OpRegisterFiles2, uring.OpRegisterFilesUpdate, uring.OpRegisterFilesUpdate2,
	uring.OpUnregisterFiles, uring.OpRegisterBuffers, uring.OpRegisterBuffers2, uring.OpRegisterBuffersUpdate,
	uring.OpUnregisterBuffers, uring.OpRegisterCloneBuffers, uring.OpRegisterPBufRing, uring.OpUnregisterPBufRing,
	uring.OpRegisterRingFDs, uring.OpUnregisterRingFDs,
}

// entryFlags may go with any operation.
const entryFlags = uring.SQEFixedFile | uring.SQEDrain | uring.SQELink | uring.SQEHardLink |
	uring.SQEAsync | uring.SQEBufferSelect | uring.SQESkipSuccess

// restrictions are what the options leave a ring, nil for everything.
func (o *Options) restrictions() *uring.Restrictions {
	if o.Restrict == nil {
		return nil
	}
	ops := slices.Concat(o.Restrict, ownOps)
	for _, op := range o.Restrict {
		if fixed, ok := fixedOps[op]; ok {
			ops = append(ops, fixed)
		}
	}
	if o.Pinned {
		ops = append(ops, uring.OpRead) // of the eventfd that wakes the thread
	}
	slices.Sort(ops)
	return &uring.Restrictions{Ops: slices.Compact(ops), RegisterOps: ownRegisterOps, FlagsAllowed: entryFlags}
}
