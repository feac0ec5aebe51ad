// SPDX-License-Identifier: MIT

package reactor

import (
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/uring"
)

// An operation can end early although its cancellation was not requested. The kernel
// cancels the operations of a thread that exits, and here one thread submits for many
// goroutines. A cancellation that arrives when a worker thread has just completed its
// target interrupts that thread's next operation. And the kernel cancels operations
// that wait for the first worker thread of the submitting thread if signals, such as
// those of Go's scheduler, interrupt the creation of that worker four times (seen on
// Linux 6.1; TestInterruptedWorkers). Such operations are submitted again if the table
// below allows it for the opcode and the reason is known:
//
//   - after ECANCELED only when the thread that submitted the operation has exited, or
//     when the operation's file is of a kind that never returns ECANCELED by itself;
//   - after EINTR, which means that nothing was done, in any case;
//   - never when a user's SQE that may cancel others, such as [uring.SQE.CancelWith], was
//     submitted since the operation started;
//   - at most maxRetries times.
//
// In all other cases the caller gets the kernel's result. Some files return ECANCELED
// or EINTR themselves: a timerfd when the clock is set, a file system in user space.

// retryRule is the set of results after which an operation may be submitted again.
type retryRule uint8

const (
	// retryNever is for operations that may have had an effect that must not happen
	// twice.
	retryNever retryRule = iota
	// retryCancelled is for writes and sends. ECANCELED means that the transfer has
	// not begun; after EINTR it may have had an effect.
	retryCancelled
	// retryStopped is for operations without an effect, or without one unless they
	// succeed. They may be submitted again after EINTR too.
	retryStopped
)

// retryRules has a row for each opcode that may be submitted again. TestRetryRules has
// one for every opcode.
var retryRules = [uring.OpCount]retryRule{
	// They read state, wait, or sync.
	uring.OpNop:           retryStopped,
	uring.OpFsync:         retryStopped,
	uring.OpSyncFileRange: retryStopped,
	uring.OpFadvise:       retryStopped,
	uring.OpFgetxattr:     retryStopped,
	uring.OpPollAdd:       retryStopped,
	uring.OpEpollWait:     retryStopped,
	uring.OpFutexWait:     retryStopped,
	uring.OpFutexWaitv:    retryStopped,
	uring.OpWaitID:        retryStopped,
	uring.OpTimeout:       retryStopped, // a relative one fires later than it would have

	// They take data or a connection only when they succeed.
	uring.OpRead:          retryStopped,
	uring.OpReadv:         retryStopped,
	uring.OpReadFixed:     retryStopped,
	uring.OpReadvFixed:    retryStopped,
	uring.OpReadMultishot: retryStopped,
	uring.OpRecv:          retryStopped,
	uring.OpRecvMsg:       retryStopped,
	uring.OpAccept:        retryStopped,

	// A partial transfer is a short count, never ECANCELED.
	uring.OpWrite:       retryCancelled,
	uring.OpWritev:      retryCancelled,
	uring.OpWriteFixed:  retryCancelled,
	uring.OpWritevFixed: retryCancelled,
	uring.OpSend:        retryCancelled,
	uring.OpSendMsg:     retryCancelled,

	// Never: operations that depend on the thread that submits them (dependsOnThread), such
	// as STATX, because another thread would submit them again; CLOSE, because the descriptor may name another file by then; CONNECT,
	// which continues after an interruption; operations that create, remove or change
	// names, files, descriptors, sockets or the ring; SPLICE and TEE, which move data
	// between two files; zero-copy sends, whose memory the kernel may still read;
	// messages, commands, wakeups and cancellations.
}

// maxRetries limits how often one operation is submitted again.
const maxRetries = 64

// mayRetry reports whether the table allows that an operation is submitted again after
// a result.
func (v *entry) mayRetry(res int32) bool {
	e := v.op.SQE.Raw()
	if int(e.Opcode) >= len(retryRules) || v.retries >= maxRetries {
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

// interrupted reports whether a result means that the operation was ended early. A
// worker thread that is interrupted returns EINTR, as a system call would.
func interrupted(res int32) bool {
	return res == -int32(syscall.ECANCELED) || res == -int32(syscall.EINTR)
}

// userErrno replaces ERESTARTSYS, which Linux 6.1 returns where it means EINTR.
func userErrno(res int32) int32 {
	const restart = 512 // ERESTARTSYS
	if res == -restart {
		return -int32(syscall.EINTR)
	}
	return res
}

// retry reports whether an operation that was ended early is, or may yet be, submitted
// again. Otherwise the slot's result is final. The caller holds reaping.
func (l *loop) retry(s *slot) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.decide(s, 0)
}

// decide decides whether an operation that was ended early is submitted again, after
// the given number of rechecks of the thread that had submitted it. The kernel does not
// have the operation. The caller holds mu.
func (l *loop) decide(s *slot, rechecks int) (goesOn bool) {
	v, id := &s.Value, s.ID()
	v.rechecking.Store(0)
	eintr := v.res.Res == -int32(syscall.EINTR)
	switch {
	case l.cancelled(v, id), v.cancels != l.cancels:
		return false
	case v.stream: // the consumer may have to set up its state again
		return false
	case eintr || rechecks > 0:
		if !v.mayRetry(v.res.Res) {
			return false
		}
	}
	if eintr {
		return l.submitAgain(v, id)
	}
	exited, sure := l.ring.Exited(int(v.thread.Load()))
	switch {
	case exited:
		return v.mayRetry(v.res.Res) && l.submitAgain(v, id)
	case rechecks == 0:
		v.rechecking.Store(uint64(id))
		fd, ok := v.file()
		go l.investigate(id, fd, ok)
		return true
	case sure || rechecks == maxRechecks:
		return false
	}
	v.rechecking.Store(uint64(id))
	time.AfterFunc(recheckPause<<rechecks, func() {
		l.recheck(id, func(s *slot) bool { return l.decide(s, rechecks+1) })
	})
	return true
}

// maxWorkerless limits how often an operation is submitted again because the kernel may
// not have been able to create a worker thread for it.
const maxWorkerless = 8

// investigate decides about an operation that was cancelled while the thread that had
// submitted it may be alive. fd is the descriptor of its file, if ok is set.
func (l *loop) investigate(id inflight.ID, fd int, ok bool) {
	own := ok && l.ring.AnswersCancelled(fd)
	limit := probe.TaskLimit(os.DirFS("/"))
	l.recheck(id, func(s *slot) bool {
		v := &s.Value
		v.rechecking.Store(0)
		mayRetry := v.mayRetry(v.res.Res)
		switch {
		case l.cancelled(v, id), v.cancels != l.cancels:
			return false
		case limit != "" && !(own && mayRetry), ok && !own && mayRetry && v.workerless >= maxWorkerless:
			v.res.Cause = noWorkers(limit)
			return false
		case !mayRetry:
			return false
		case ok && !own:
			v.workerless++
			return l.submitAgain(v, id)
		}
		return l.decide(s, 1)
	})
}

// file returns the descriptor of the operation's file, unless it is registered or the
// opcode has none.
func (v *entry) file() (fd int, ok bool) {
	e := v.op.SQE.Raw()
	switch uring.Op(e.Opcode) {
	case uring.OpNop, uring.OpStatx, uring.OpGetxattr, uring.OpTimeout,
		uring.OpFutexWait, uring.OpFutexWaitv, uring.OpWaitID:
		return -1, false
	}
	return int(e.Fd), e.Flags&uint8(uring.SQEFixedFile) == 0
}

// cancelled reports whether the cancellation of an operation was requested, and if so
// puts that into the result. The caller holds mu.
func (l *loop) cancelled(v *entry, id inflight.ID) bool {
	if !v.cancelRequested(id) {
		return false
	}
	v.res = Result{Res: -int32(syscall.ECANCELED)}
	if l.closing.Load() {
		v.res.Cause = ErrClosed
	}
	return true
}

// submitAgain submits an operation again. If the ring has failed, the operation ends
// with that error: it has not begun. The caller holds mu.
func (l *loop) submitAgain(v *entry, id inflight.ID) bool {
	if l.failed != nil {
		v.res = Result{Cause: l.failed}
		return false
	}
	v.answered = false
	v.retries++
	l.addWork(work{id: id})
	l.stats.retried.Add(1)
	return true
}

// A thread that exits cancels its operations before it is gone. So a thread that still
// exists is checked again, 100 µs to 51.2 ms later, 0.1 s in all, unless it is seen to
// do something else.
const (
	recheckPause = 100 * time.Microsecond
	maxRechecks  = 10
)

// recheck ends an operation whose end was held back, unless goesOn reports that it goes
// on.
func (l *loop) recheck(id inflight.ID, goesOn func(*slot) bool) {
	l.mu.Lock()
	if s := l.table.Lookup(id); s != nil && !goesOn(s) {
		l.end(s, s.Value.res)
	}
	l.mu.Unlock()
	l.callbacks.notify()
	l.advance()
}
