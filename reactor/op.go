// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

var (
	// ErrClosed is returned by calls on a closed reactor. It is the Cause of
	// operations that Close cancelled. It matches os.ErrClosed.
	ErrClosed error = closedError{}
	// ErrFull is returned by Queue and Stream when the loop has Options.InFlight
	// operations in flight.
	ErrFull = errors.New("reactor: too many operations in flight: wait for one, or raise Options.InFlight")
	// ErrFailed is the Cause of operations whose ring has failed, for example
	// because its descriptor was closed, or because a policy now forbids io_uring.
	// It wraps the reason. Unless ErrTaken is wrapped too, the operation has not
	// begun.
	ErrFailed = errors.New("reactor: ring failed")
	// ErrTaken is wrapped in addition to ErrFailed when the kernel had taken the
	// operation. The kernel may still carry it out, at any time, and may still read and
	// write its memory. That memory stays reachable for the life of the process and
	// must not be used again.
	ErrTaken = errors.New("the kernel may still carry out the operation")
	// ErrNoWorkers is the Cause of operations that the kernel cancelled before they began,
	// because they need a worker thread and the process may not have one more task. It
	// names the limit that is reached, as far as it is visible, and wraps ECANCELED.
	ErrNoWorkers = errors.New("reactor: the kernel cannot create a worker thread")
	// ErrNotFound is returned by Cancel when the operation has ended.
	ErrNotFound = errors.New("reactor: no such operation")

	// errRefused wraps EAGAIN: the operation has not begun.
	errRefused = fmt.Errorf("reactor: the kernel has no memory for the operation now: %w", syscall.EAGAIN)

	// These explain results that come from what the ring lacks.
	errNoFiles = fmt.Errorf("reactor: its rings have no registered files: "+
		"pass a descriptor by uring.Fd, or register files with a uring.Ring: %w", syscall.EBADF)
	errNoBuffer = fmt.Errorf("reactor: the buffer group is missing or empty on the ring of this loop: "+
		"provide buffers by uring.SQE.ProvideBuffers with Options.Loops 1, or use a uring.BufRing with a uring.Ring: %w",
		syscall.ENOBUFS)
	errNoBuffers = fmt.Errorf("reactor: its rings have no registered buffer of this index with this memory: "+
		"use the builder without Fixed, or Reactor.RegisterBuffer: %w", syscall.EFAULT)
	errNoSlots = fmt.Errorf("reactor: its rings have no registered files, so there is no slot for a new one: "+
		"leave SetSlot out, or register files with a uring.Ring: %w", syscall.ENXIO)

	errNoOp  = errors.New("reactor: no operation: the Op is nil")
	errFlags = errors.New("reactor: an SQE with SQELink, SQEHardLink, SQEDrain or SQESkipSuccess needs a ring of its own: use uring.Ring")
)

// noWorkers returns ErrNoWorkers with the limit that is reached, "" if it is not visible.
func noWorkers(limit string) error {
	if limit == "" {
		limit = "a limit of tasks (pids.max of the cgroup or of one above it, RLIMIT_NPROC)"
	}
	return fmt.Errorf("%w: %s is reached; raise it, or use plain calls: %w", ErrNoWorkers, limit, syscall.ECANCELED)
}

type closedError struct{}

func (closedError) Error() string { return "reactor: closed" }

func (closedError) Is(target error) bool { return target == os.ErrClosed }

// Op is an operation. The methods that start it copy it.
type Op struct {
	// SQE is filled by one of its builders. The reactor replaces its user data. SQEs of
	// other goroutines precede and follow it, so the reactor refuses an SQE that links to
	// the next, an SQE that waits for those before it and delays those after it
	// (SQEDrain), and an SQE that completes without a CQE.
	SQE uring.SQE
	// Buf and Keep stay reachable until the last completion of the operation. Put
	// all memory that the SQE points at here. Either may be nil.
	Buf  []byte
	Keep any
	// Bytes is the number of bytes that the kernel may copy or pin while it takes the
	// SQE, usually the size of the transfer. A submission of more than 256 KiB enters
	// the scheduler (entersyscall), so that other goroutines get the P meanwhile.
	Bytes int
}

// Result is the end of an operation, or one event of a stream.
type Result struct {
	// Res is the kernel's result: a count, a descriptor, or a negative errno.
	Res   int32
	Flags uring.CQEFlags
	// Cause is the reason why the operation ended without a result of the kernel:
	// ErrClosed, ErrFailed (see also ErrTaken), the cause of the context that ended, or
	// an error in the Op. It wraps the errno in Res and names the remedy when an SQE names
	// what the ring lacks: a registered file (EBADF), a slot for one (ENXIO), a registered
	// buffer (EFAULT) or a buffer group (ENOBUFS), and when there is no worker
	// (ErrNoWorkers). Otherwise it is nil, also when Res is negative.
	Cause error
}

// Err returns the error of a failed operation, which is Cause or the errno in Res, and
// nil when the operation succeeded. Compare it with errors.Is.
func (r Result) Err() error {
	if r.Cause != nil || r.Res >= 0 {
		return r.Cause
	}
	return syscall.Errno(-r.Res)
}

// Errno returns the errno of a failed operation, 0 otherwise.
func (r Result) Errno() syscall.Errno {
	if r.Res >= 0 {
		return 0
	}
	return syscall.Errno(-r.Res)
}

// explain adds to a failed result what the ring lacks for the operation.
func (v *entry) explain() {
	raw := v.op.SQE.Raw()
	switch errno := v.res.Errno(); {
	case errno == syscall.EBADF && raw.Flags&uint8(uring.SQEFixedFile) != 0:
		v.res.Cause = errNoFiles
	case errno == syscall.ENOBUFS && raw.Flags&uint8(uring.SQEBufferSelect) != 0:
		v.res.Cause = errNoBuffer
	case errno == syscall.EFAULT && usesFixedBuffer(raw):
		v.res.Cause = errNoBuffers
	case errno == syscall.ENXIO && takesSlot(raw):
		v.res.Cause = errNoSlots
	}
}

// fixedBuffer is what SetFixedBuffer sets.
var fixedBuffer = new(uring.SQE).SetFixedBuffer(0).Raw().Ioprio

// usesFixedBuffer reports whether an SQE names a registered buffer.
func usesFixedBuffer(raw *uring.RawSQE) bool {
	switch op := uring.Op(raw.Opcode); op {
	case uring.OpSendZC, uring.OpSendMsgZC:
		return raw.Ioprio&fixedBuffer != 0
	default:
		return namesBuffer(op)
	}
}

// takesSlot reports whether an SQE puts its result into, or removes it from, the table of
// registered files.
func takesSlot(raw *uring.RawSQE) bool {
	switch uring.Op(raw.Opcode) {
	case uring.OpOpenAt, uring.OpOpenAt2, uring.OpAccept, uring.OpSocket, uring.OpPipe, uring.OpClose:
		return raw.FileIndex != 0
	}
	return false
}

// More reports whether a stream continues after this event.
func (r Result) More() bool { return r.Cause == nil && r.Flags&uring.CQEMore != 0 }

// ID identifies an operation that Queue or Stream started, until it has ended. The zero
// ID identifies no operation.
type ID struct {
	loop *loop
	id   inflight.ID
}
