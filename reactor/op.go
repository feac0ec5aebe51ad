// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

var (
	// ErrClosed is returned by calls on a closed reactor, and ends the
	// operations that closing found in flight.
	ErrClosed = errors.New("reactor: closed")
	// ErrFull is returned by Queue when the loop holds as many operations as
	// it may.
	ErrFull = errors.New("reactor: too many operations in flight")
	// ErrNotFound is returned by Cancel for an operation that is over.
	ErrNotFound = errors.New("reactor: no such operation")
)

// Op is an operation to start. It is copied.
type Op struct {
	// SQE is the entry, made by one of its builders. Its user data is
	// replaced.
	SQE uring.SQE
	// Buf and Keep stay reachable until the last completion; either may be
	// nil. Name here whatever the entry points at.
	Buf  []byte
	Keep any
	// Bytes is how much the kernel may copy or pin while it takes the entry,
	// usually the size of the transfer. Above a budget the scheduler is told
	// about the system call.
	Bytes int
}

// Result is the end of an operation, or one event of a stream.
type Result struct {
	// Res is what the kernel answered: a count, a descriptor, or a negative
	// errno.
	Res   int32
	Flags uring.CQEFlags
	// Err says why the operation ended without an answer of the kernel:
	// ErrClosed, os.ErrDeadlineExceeded, or the failure of a ring. Otherwise
	// nil, also when Res is negative.
	Err error
}

// Errno returns the errno of a failed operation, 0 otherwise.
func (r Result) Errno() syscall.Errno {
	if r.Res >= 0 {
		return 0
	}
	return syscall.Errno(-r.Res)
}

// BufferID returns the provided buffer that holds the data, when Flags has
// uring.CQEBuffer.
func (r Result) BufferID() uint16 { return uring.CQE{Flags: uint32(r.Flags)}.BufferID() }

// More says whether a stream goes on after this event.
func (r Result) More() bool { return r.Err == nil && r.Flags&uring.CQEMore != 0 }

// ID names an operation that was queued, until its end. The zero ID names
// nothing.
type ID struct {
	loop *loop
	id   inflight.ID
}

// entry is what a slot of the table holds.
type entry struct {
	op   Op            // also for submitting again
	done chan struct{} // capacity 1: completing never blocks
	res  Result

	fn    func(Result) // the callback of a queued operation
	group *group       // of a batch
	index int          // in the batch

	detached  bool // nobody waits at done: ending it releases the slot
	stream    bool // every completion is an event
	answered  bool // res is set; a notification is still to come
	cancelled bool // somebody asked; guarded by the loop's mu
	cancels   int  // cancellations that the kernel missed
	timeout   *linkedTimeout
}

type slot = inflight.Slot[entry]
