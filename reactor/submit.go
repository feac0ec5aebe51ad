// SPDX-License-Identifier: MIT

package reactor

import (
	"context"

	"github.com/ringside-io/ringside/uring"
)

// begin starts an operation that the caller waits for. While no slot is free it waits,
// until ctx is done.
func (l *loop) begin(ctx context.Context, op *Op) (*slot, error) {
	if op == nil { // a panic would keep the slot
		return nil, errNoOp
	}
	s, err := l.acquire(ctx)
	if err != nil {
		return nil, err
	}
	if err := l.start(s, op); err != nil {
		l.release(s)
		return nil, err
	}
	return s, nil
}

// queue starts an operation with a callback.
func (l *loop) queue(op *Op, fn func(Result), stream bool) (ID, error) {
	if op == nil {
		return ID{}, errNoOp
	}
	s, err := l.tryAcquire()
	if err != nil {
		return ID{}, err
	}
	v := &s.Value
	v.fn, v.stream, v.detached = fn, stream, true
	id := ID{l, s.ID()}
	l.callbacks.start()
	if err := l.start(s, op); err != nil {
		l.release(s)
		return ID{}, err
	}
	return id, nil
}

// start puts an operation into its slot, fills its SQE and ensures that it is
// submitted.
func (l *loop) start(s *slot, op *Op) error {
	if op.SQE.Raw().Flags&refusedFlags != 0 {
		return errFlags
	}
	l.fill(s, op)
	l.mu.Lock()
	err := l.refusalLocked()
	if err == nil {
		err = l.makeSpace()
	}
	if err == nil {
		err = l.refusalLocked() // it may have been closed meanwhile
	}
	if err != nil {
		l.mu.Unlock()
		return err
	}
	l.fillSQE(s)
	if dependsOnThread(op.SQE.Raw().Opcode) {
		l.submitOwn(s)
	} else {
		l.submit()
	}
	return nil
}

// dependsOnThread reports whether an operation depends on the thread that submits it: on
// its credentials, working directory, root or namespaces.
func dependsOnThread(opcode uint8) bool {
	switch uring.Op(opcode) {
	case uring.OpOpenAt, uring.OpOpenAt2, uring.OpStatx, uring.OpRenameAt, uring.OpUnlinkAt, uring.OpMkdirAt,
		uring.OpSymlinkAt, uring.OpLinkAt, uring.OpSetxattr, uring.OpGetxattr, uring.OpFsetxattr,
		uring.OpSocket, uring.OpConnect, uring.OpBind, uring.OpUringCmd:
		return true
	}
	return false
}

// submitOwn submits the pending SQEs, the last of which is s's, on the caller's thread. If
// the kernel refuses it for now, the operation ends: another thread would submit it later.
// The caller holds mu, which submitOwn releases.
func (l *loop) submitOwn(s *slot) {
	id := uint64(s.ID())
	l.flush()
	for _, e := range l.pending {
		if e.Raw().UserData == id {
			e.Nop().SetUserData(id) // whose completion finds no slot
			l.end(s, Result{Cause: errRefused})
			break
		}
	}
	l.mu.Unlock()
	l.callbacks.notify()
	l.reap()
}

// refusedFlags are the flags that affect the SQEs of other goroutines, or suppress the
// CQE. SQEDrain would delay cancellations too, and Close would wait forever.
const refusedFlags = uint8(uring.SQELink | uring.SQEHardLink | uring.SQEDrain | uring.SQESkipSuccess)

// submit ensures that the kernel gets the pending SQEs. The caller holds mu, which
// submit releases.
func (l *loop) submit() {
	l.submits++
	if l.starvation.yields(l.mayGather()) {
		// The device has work, so other goroutines get the chance to add theirs.
		if l.leading {
			l.mu.Unlock()
			return
		}
		l.leading = true
		before := l.submits
		l.mu.Unlock()
		took := yield()
		l.mu.Lock()
		l.leading = false
		l.starvation.learn(took, int(l.submits-before))
	}
	l.flush()
	l.mu.Unlock()
	l.reap()
}

// mayGather reports whether the caller yields before it submits, so that other
// goroutines add their SQEs. The caller holds mu.
func (l *loop) mayGather() bool {
	inKernel := l.inKernel()
	if len(l.pending) >= inKernel {
		return false
	}
	return inKernel > shallow || l.submits%probeInterval == 0
}

// probeInterval is the number of submissions, while few operations are in flight,
// after which one yields all the same, to detect starvation.
const probeInterval = 16

// shallow is the number of operations in the kernel up to which a submission does not
// wait for others: while it waits, the device has too little to overlap with. Waiting
// from five operations on saves a tenth to a quarter of the processor time with 8 to
// 128 readers (docs/submission.md).
const shallow = 4

// inKernel returns about how many operations the kernel has. The caller holds mu.
func (l *loop) inKernel() int { return l.table.Held() - len(l.pending) }
