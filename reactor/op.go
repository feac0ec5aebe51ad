// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

var (
	// ErrClosed is returned by calls on a closed reactor, and ends the
	// operations that closing found in flight. It matches os.ErrClosed.
	ErrClosed error = closedError{}
	// ErrFull is returned by Queue when the loop holds as many operations as
	// it may.
	ErrFull = errors.New("reactor: too many operations in flight")
	// ErrFailed ends operations when their ring has failed: the descriptor was
	// closed by somebody else, say, or a policy now forbids io_uring. The
	// cause is wrapped too. Unless ErrTaken is, the operation has not begun.
	ErrFailed = errors.New("reactor: ring failed")
	// ErrTaken is wrapped beside ErrFailed when the kernel had taken the
	// operation already. It may still be carried out, at any time, and its
	// memory may still be read and written to: it is kept reachable for ever
	// and must not be used again.
	ErrTaken = errors.New("the kernel may still carry out the operation")
	// ErrNotFound is returned by Cancel for an operation that is over.
	ErrNotFound = errors.New("reactor: no such operation")
)

type closedError struct{}

func (closedError) Error() string { return "reactor: closed" }

func (closedError) Is(target error) bool { return target == os.ErrClosed }

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
	// File, when not nil, is what the operation works on in the place of the
	// descriptor in SQE, by which it is routed all the same.
	File *FixedFile
	// Buffer, when not nil, is the pool's buffer in which the memory that SQE
	// names lies: a Read, Write or SendZC of it becomes the one that uses the
	// registered memory. It stays taken until the last completion.
	Buffer *Buffer
}

// Result is the end of an operation, or one event of a stream.
type Result struct {
	// Res is what the kernel answered: a count, a descriptor, or a negative
	// errno.
	Res   int32
	Flags uring.CQEFlags
	// Cause says why the operation ended without an answer of the kernel:
	// ErrClosed, os.ErrDeadlineExceeded, ErrFailed (see also ErrTaken), the cause
	// of the context that ended, or what is wrong with the Op. Otherwise nil,
	// also when Res is negative: [Result.Err] has both.
	Cause error
}

// Err returns why the operation failed, nil when it did not: Cause, or else the
// errno in Res. Compare it with errors.Is.
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

// BufferID returns the provided buffer that holds the data, when Flags has
// uring.CQEBuffer.
func (r Result) BufferID() uint16 { return uring.CQE{Flags: r.Flags}.BufferID() }

// More reports whether a stream goes on after this event.
func (r Result) More() bool { return r.Cause == nil && r.Flags&uring.CQEMore != 0 }

// ID names an operation that was queued, until its end. The zero ID names
// nothing.
type ID struct {
	loop *loop
	id   inflight.ID
}

// entry is what a slot of the table holds.
type entry struct {
	use
	done    chan struct{} // capacity 1: completing never blocks
	timeout *linkedTimeout

	// Who cancels does not hold the slot, which may be released and taken
	// again at any moment. So these name the use that they are about.
	askedFor atomic.Uint64 // its cancellation was asked for; set under mu
	restart  atomic.Uint64 // it lost its deadline, and is to start again with it
	fired    atomic.Uint64 // its deadline is over, as the kernel has said
	judged   atomic.Uint64 // it has ended, and lookAgain decides whether for good
	thread   atomic.Int32  // which has submitted it, 0 where no exit cancels it
	key      shadowKey
	missed   atomic.Uint64 // generation << 32 | cancellations that the kernel missed
	parked   atomic.Uint64 // its stream waits for provided buffers; see store
}

// use is what belongs to one use of a slot.
type use struct {
	op  Op // also for submitting again
	res Result

	fn    func(Result) // the callback of a queued operation
	event func(*Event) // the callback of a stream into provided buffers
	store *store       // from which these come
	limit int64        // bytes that such a stream may still bring, or noLimit
	group *group       // of a batch
	index int          // in the batch

	cancels uint32 // entries that may cancel others, before it
	retries int    // how often it was submitted again

	detached bool // nobody waits at done: ending it releases the slot
	stream   bool // every completion is an event
	answered bool // res is set; a notification is still to come
	orphan   bool // it became a no-op, because its chain was split
	doomed   bool // the ring has failed and the kernel may still use it
}

// ask remembers that somebody asked for the cancellation of a use.
func (v *entry) ask(id inflight.ID) { v.askedFor.Store(uint64(id)) }

func (v *entry) asked(id inflight.ID) bool { return v.askedFor.Load() == uint64(id) }

// miss counts a cancellation that the kernel missed and returns how many there
// were before. Only who reaps calls it.
func (v *entry) miss(id inflight.ID) int {
	m := v.missed.Load()
	if m>>32 != uint64(id)>>32 {
		m = uint64(id) >> 32 << 32
	}
	v.missed.Store(m + 1)
	return int(uint32(m))
}

type slot = inflight.Slot[entry]
