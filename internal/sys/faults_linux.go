// SPDX-License-Identifier: MIT

package sys

import (
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
)

// Faults are what a test puts before the kernel in builds that are [Faulty]: it
// is asked at the door, so that whatever it decides is an answer that the kernel
// could have given, with nothing done that the answer denies.
type Faults struct {
	// Enter is shown the entries that io_uring_enter(2) is about to take. It may
	// change them, and it returns how many of them shall be taken, or an errno
	// in the place of the whole call.
	Enter func(entries []*abi.SQE) (int, syscall.Errno)
	// Call is told the name of another call, and of how many bytes, messages or
	// events it is. It returns how many it shall be, or an errno in the place of
	// the call. Of io_uring_register(2) n is the operation.
	Call func(name string, n int) (int, syscall.Errno)
}

var faults atomic.Pointer[Faults]

// SetFaults puts f before the kernel, or takes away what is there when it is nil.
// Rings that were opened before have their entries left alone.
func SetFaults(f *Faults) { faults.Store(f) }

// submissions are the submission queues of rings, by descriptor.
var submissions struct {
	sync.Mutex
	rings map[int]*submission
}

type submission struct {
	params      abi.Params
	queue, sqes *Region
}

// faultySetup notes a ring that was opened.
func faultySetup(fd int, p *abi.Params) {
	const other = abi.IORING_SETUP_SQE128 | abi.IORING_SETUP_SQPOLL | abi.IORING_SETUP_NO_MMAP | abi.IORING_SETUP_REGISTERED_FD_ONLY
	submissions.Lock()
	defer submissions.Unlock()
	delete(submissions.rings, fd) // of a ring that is closed
	if faults.Load() == nil || p.Flags&other != 0 {
		return
	}
	if submissions.rings == nil {
		submissions.rings = make(map[int]*submission)
	}
	submissions.rings[fd] = &submission{params: *p}
}

// faultyMap notes where a ring's queue is mapped.
func faultyMap(fd int, off int64, r *Region) {
	submissions.Lock()
	defer submissions.Unlock()
	if s := submissions.rings[fd]; s != nil {
		switch off {
		case abi.IORING_OFF_SQ_RING:
			s.queue = r
		case abi.IORING_OFF_SQES:
			s.sqes = r
		}
	}
}

// faultyEnter asks about an enter. A call that shall take less than it was told
// must not wait, as the kernel's would not.
func faultyEnter(fd int, submit, wait uint32) (uint32, uint32, syscall.Errno) {
	f := faults.Load()
	if f == nil {
		return submit, wait, 0
	}
	entries := entriesOf(fd, submit)
	n, errno := f.Enter(entries)
	if errno == 0 && n < len(entries) {
		return uint32(n), 0, 0
	}
	return submit, wait, errno
}

// entriesOf returns the next entries that the kernel takes of a ring.
func entriesOf(fd int, n uint32) []*abi.SQE {
	submissions.Lock()
	defer submissions.Unlock()
	s := submissions.rings[fd]
	if s == nil || s.queue == nil || s.sqes == nil || s.sqes.base == nil {
		return nil
	}
	head, tail := s.queue.Word(s.params.SqOff.Head).Load(), s.queue.Word(s.params.SqOff.Tail).Load()
	all := Slice[abi.SQE](s.sqes, 0, int(s.params.SqEntries))
	entries := make([]*abi.SQE, min(n, tail-head))
	for i := range entries {
		entries[i] = &all[(head+uint32(i))&(s.params.SqEntries-1)]
	}
	return entries
}

// faulty asks about another call.
func faulty(name string, n int) (int, syscall.Errno) {
	if f := faults.Load(); f != nil {
		return f.Call(name, n)
	}
	return n, 0
}
