// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// Operations end before their time although nobody has asked for two reasons. The kernel
// cancels what a thread has submitted when that exits, and here one thread submits for
// many goroutines. And a cancellation that comes just when a worker thread has done with
// its operation interrupts the next one (seen with SQPoll). Such operations are submitted
// again, if the rules below allow it and the reason is known:
//
//   - after ECANCELED only when the thread that had submitted has exited, or when the
//     loop itself had cancelled the operation because its deadline could not be set;
//   - after EINTR, which says that nothing was done, for that reason or any other;
//   - never when a user has entered something that cancels, such as
//     [uring.SQE.CancelFD], since the operation was started;
//   - never more often than mostRetries.
//
// Everything else is the result. A file may answer so itself: a timerfd when the clock
// is set, a file system in user space.

// retryRule says after which answers an operation may be submitted again.
type retryRule uint8

const (
	// retryNever is for what may have done something that must not be done twice.
	retryNever retryRule = iota
	// retryCancelled is for transfers to others: ECANCELED says that none has
	// begun; one that was interrupted at work may have had an effect.
	retryCancelled
	// retryStopped is for what has no effect, or none without its success, so that
	// an interrupted one may begin again, too.
	retryStopped
)

// retryRules has a row for each opcode that may be retried; TestRetryRules has one for
// every opcode.
var retryRules = [uring.OpCount]retryRule{
	// They only look, wait, or make durable what is there.
	uring.OpNop:           retryStopped,
	uring.OpFsync:         retryStopped,
	uring.OpSyncFileRange: retryStopped,
	uring.OpStatx:         retryStopped,
	uring.OpFadvise:       retryStopped,
	uring.OpFgetxattr:     retryStopped,
	uring.OpGetxattr:      retryStopped,
	uring.OpPollAdd:       retryStopped,
	uring.OpEpollWait:     retryStopped,
	uring.OpFutexWait:     retryStopped,
	uring.OpFutexWaitv:    retryStopped,
	uring.OpWaitID:        retryStopped,
	uring.OpTimeout:       retryStopped, // a relative one fires later than it would have

	// They take data, or a connection, only when they succeed.
	uring.OpRead:          retryStopped,
	uring.OpReadv:         retryStopped,
	uring.OpReadFixed:     retryStopped,
	uring.OpReadvFixed:    retryStopped,
	uring.OpReadMultishot: retryStopped,
	uring.OpRecv:          retryStopped,
	uring.OpRecvMsg:       retryStopped,
	uring.OpAccept:        retryStopped,

	// A part that was transferred is a short count, never ECANCELED.
	uring.OpWrite:       retryCancelled,
	uring.OpWritev:      retryCancelled,
	uring.OpWriteFixed:  retryCancelled,
	uring.OpWritevFixed: retryCancelled,
	uring.OpSend:        retryCancelled,
	uring.OpSendMsg:     retryCancelled,

	// Never: CLOSE, after which the number may be another's already; CONNECT, which
	// goes on after it was interrupted; what makes, removes or changes names, files,
	// descriptors, sockets or the ring; SPLICE and TEE, which move data between two
	// files; sends without a copy, whose memory the kernel may still read; messages,
	// commands, wake-ups and cancellations.
}

// mostRetries bounds how often one operation is submitted again.
const mostRetries = 64

// mayRetry reports whether the rules let an operation be submitted again after an
// answer.
func (v *entry) mayRetry(res int32) bool {
	e := v.op.SQE.Raw()
	if int(e.Opcode) >= len(retryRules) || v.retries >= mostRetries || e.Flags&linkFlags != 0 {
		return false
	}
	const countsCompletions = uint8(uring.OpTimeout)
	if e.Opcode == countsCompletions && e.Off != 0 {
		return false
	}
	switch retryRules[e.Opcode] {
	case retryCancelled:
		return res == -int32(syscall.ECANCELED)
	case retryStopped:
		return interrupted(res)
	}
	return false
}

// interrupted reports whether an operation was ended before its time. Worker
// threads that are interrupted answer as a system call would.
func interrupted(res int32) bool {
	return res == -int32(syscall.ECANCELED) || res == -int32(syscall.EINTR)
}

// plainErrno returns a result with what the kernel never shows otherwise replaced:
// Linux 6.1 answers ERESTARTSYS where it means EINTR.
func plainErrno(res int32) int32 {
	const restart = 512 // ERESTARTSYS
	if res == -restart {
		return -int32(syscall.EINTR)
	}
	return res
}

// stopped reports that an operation that was ended before its time goes on: it is, or
// may be, submitted again. Otherwise the result of the slot says why it has ended.
// The caller holds reaping.
func (l *loop) stopped(s *slot) (goesOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.judge(s, 0)
}

// judge decides what becomes of an operation that was ended before its time, after the
// given number of looks at its thread. Such an operation is in no other hands: the
// kernel is done with it. The caller holds mu.
func (l *loop) judge(s *slot, looks int) (goesOn bool) {
	v, id := &s.Value, s.ID()
	v.judged.Store(0)
	if l.endedOnPurpose(v, id) {
		return false
	}
	switch {
	case v.cancels != l.cancels || !v.mayRetry(v.res.Res):
		return false
	case v.group != nil && v.group.chain:
		return false // it may depend on one that has failed
	case v.stream && v.store == nil:
		return false // the consumer may have to set up its state again
	}
	if v.res.Res == -int32(syscall.EINTR) || v.restart.CompareAndSwap(uint64(id), 0) {
		return l.submitAgain(v, id)
	}
	exited, sure := false, true
	if thread := v.thread.Load(); thread != 0 {
		exited, sure = l.ring.Exited(int(thread))
	}
	switch {
	case exited:
		return l.submitAgain(v, id)
	case v.timeout.armed() && looks < mostLooks: // timeoutDone comes about the same time, and tells
	case sure || looks == mostLooks:
		return false
	}
	v.judged.Store(uint64(id))
	time.AfterFunc(lookPause<<looks, func() { l.lookAgain(id, looks+1) })
	return true
}

// submitAgain submits an operation again, unless the ring has failed: then it has not
// begun, as the result says. The caller holds mu.
func (l *loop) submitAgain(v *entry, id inflight.ID) bool {
	if l.failed != nil {
		v.res = Result{Cause: l.failed}
		return false
	}
	v.answered = false
	v.retries++
	l.leaveChore(chore{id: id})
	l.stats.retried.Add(1)
	return true
}

// A thread that exits cancels its operations before it is gone. So one that is there
// is looked at again, 100 µs to 51.2 ms later, a tenth of a second in all, unless it
// is seen to do something else.
const (
	lookPause = 100 * time.Microsecond
	mostLooks = 10
)

// lookAgain is what the timer does.
func (l *loop) lookAgain(id inflight.ID, looks int) {
	l.mu.Lock()
	s := l.table.Lookup(id)
	if s != nil && !l.judge(s, looks) {
		l.end(s, s.Value.res)
		l.wakeLocked() // a pinned loop's thread calls back
	}
	l.mu.Unlock()
	l.calls.kick()
	l.catchUp()
}

// endedOnPurpose reports whether an operation was ended by its deadline or because
// somebody asked, and if so puts that into the result. The caller holds mu.
func (l *loop) endedOnPurpose(v *entry, id inflight.ID) bool {
	switch {
	case v.timeout.passed(time.Now()):
		v.res = Result{Res: -int32(syscall.ECANCELED), Cause: os.ErrDeadlineExceeded}
	case v.asked(id):
		v.res = Result{Res: -int32(syscall.ECANCELED)}
		if l.closing {
			v.res.Cause = ErrClosed
		}
	default:
		return false
	}
	return true
}

// cancels reports whether an entry of the given opcode may cancel others.
func cancels(opcode uint8) bool {
	switch uring.Op(opcode) {
	case uring.OpAsyncCancel, uring.OpPollRemove, uring.OpTimeoutRemove:
		return true
	}
	return false
}

// Submitter returns the thread that submits now, 0 where no exit of a thread cancels
// anything: a pinned loop's own lives as long as the ring, and what a kernel thread
// has taken is that thread's.
func (k *kernelRing) Submitter() int {
	if k.wake != nil || k.SetupFlags()&uring.SetupSQPoll != 0 {
		return 0
	}
	return threadID()
}

// Exited reports whether a thread of the process has exited, and whether that is
// sure: one that exits looks alive at first.
func (k *kernelRing) Exited(thread int) (exited, sure bool) { return sys.ThreadExited(thread) }
