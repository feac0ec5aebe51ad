// SPDX-License-Identifier: MIT

package sys

import (
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
)

// This file is for tests. In builds that are [Faulty], [Faults] change or refuse system
// calls, and a [Simulator] handles the system calls on rings. Other builds do not call
// it.

// Faults are a test's hook before each system call. A call that Faults refuse is not
// made, so that every result is a possible result of the kernel.
type Faults struct {
	// Enter gets the entries that io_uring_enter(2) is about to submit, which it may
	// change. It returns how many of them are submitted, or the errno of the call.
	Enter func(entries []*abi.SQE) (int, syscall.Errno)
	// Call gets the name of any other call and its number of bytes, messages or
	// events, for io_uring_register(2) the operation. It returns the number to use
	// instead, or the errno of the call.
	Call func(name string, n int) (int, syscall.Errno)
}

var faults atomic.Pointer[Faults]

// SetFaults installs f, or removes the hook when f is nil. Entries of rings that were
// opened before are not shown to it.
func SetFaults(f *Faults) { faults.Store(f) }

// submissions are the submission queues of the kernel's rings, by descriptor.
var submissions struct {
	sync.Mutex
	rings map[int]*submission
}

type submission struct {
	params      abi.Params
	queue, sqes *Region
}

// faultySetup registers the submission queue of a new ring, if [Faults] can change its
// entries.
func faultySetup(fd int, p *abi.Params) {
	const other = abi.IORING_SETUP_SQE128 | abi.IORING_SETUP_SQPOLL | abi.IORING_SETUP_NO_MMAP | abi.IORING_SETUP_REGISTERED_FD_ONLY
	submissions.Lock()
	defer submissions.Unlock()
	delete(submissions.rings, fd) // a closed ring had the same number
	if faults.Load() == nil || p.Flags&other != 0 {
		return
	}
	if submissions.rings == nil {
		submissions.rings = make(map[int]*submission)
	}
	submissions.rings[fd] = &submission{params: *p}
}

// faultyMap registers where a ring's queue is mapped.
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

// hookedEnter passes a call of io_uring_enter(2) to the simulator or to [Faults]. The
// caller returns n and errno if n is not negative or errno is not 0; otherwise it makes
// the call with the numbers returned.
func hookedEnter(fd int, submit, wait, flags uint32, arg unsafe.Pointer) (n int, toSubmit, toWait uint32, errno syscall.Errno) {
	if r := simulatedRing(fd, flags); r != nil {
		n, errno = simulatedEnter(r, submit, wait, flags, arg)
		return n, 0, 0, errno
	}
	toSubmit, toWait, errno = faultyEnter(fd, submit, wait)
	return -1, toSubmit, toWait, errno
}

// faultyEnter asks [Faults] about an enter. As in the kernel, a call that submits fewer
// entries than requested does not wait.
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

// entriesOf returns the next entries that the kernel takes from a ring.
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

// faulty asks [Faults] about any other call.
func faulty(name string, n int) (int, syscall.Errno) {
	if f := faults.Load(); f != nil {
		return f.Call(name, n)
	}
	return n, 0
}

// Simulator replaces the kernel's io_uring in tests, in builds that are [Faulty]. The
// memory of its rings is on Go's heap instead of mapped, so that the race detector sees
// the accesses of the kernel's half.
type Simulator interface {
	// Setup is io_uring_setup(2). The caller owns the descriptor.
	Setup(entries uint32, p *abi.Params) (fd int, r SimulatedRing, errno syscall.Errno)
	// Unmapped reports that memory was released; no operation in flight may use it.
	Unmapped(addr uint64, size int)
}

// SimulatedRing handles the calls on a descriptor of [Simulator.Setup].
type SimulatedRing interface {
	Enter(c EnterCall) (int, syscall.Errno)
	Register(op uint32, arg unsafe.Pointer, n uint32) (int, syscall.Errno)
	// Map is mmap(2) of the descriptor: see [HeapRegion].
	Map(off int64, size int) (*Region, syscall.Errno)
	// Close is called before the descriptor is closed.
	Close()
}

// EnterCall is a call of io_uring_enter(2).
type EnterCall struct {
	Submit, Wait, Flags uint32
	Timed               bool // the wait is bounded
	Timeout             time.Duration
}

var simulator atomic.Pointer[Simulator]

// SetSimulator makes s serve the rings that are opened from now on, or the kernel when
// s is nil. Open rings are not affected.
func SetSimulator(s Simulator) {
	if s == nil {
		simulator.Store(nil)
		return
	}
	simulator.Store(&s)
}

// simulated has the rings of simulators, and the memory that stands for mappings.
var simulated struct {
	n atomic.Int32 // number of rings
	sync.Mutex
	rings   map[int]SimulatedRing
	regions []simulatedRegion
}

type simulatedRegion struct {
	base unsafe.Pointer
	by   Simulator
}

// simulatedSetup opens a ring of the simulator; ok is false where there is none.
func simulatedSetup(entries uint32, p *abi.Params) (fd int, errno syscall.Errno, ok bool) {
	s := simulator.Load()
	if s == nil {
		return 0, 0, false
	}
	fd, r, errno := (*s).Setup(entries, p)
	if errno != 0 {
		return -1, errno, true
	}
	simulated.Lock()
	defer simulated.Unlock()
	if simulated.rings == nil {
		simulated.rings = make(map[int]SimulatedRing)
	}
	simulated.rings[fd] = r
	simulated.n.Add(1)
	return fd, 0, true
}

// simulatedRing returns the simulated ring of a descriptor, nil for the kernel's.
func simulatedRing(fd int, flags uint32) SimulatedRing {
	if simulated.n.Load() == 0 || flags&abi.IORING_ENTER_REGISTERED_RING != 0 {
		return nil
	}
	simulated.Lock()
	defer simulated.Unlock()
	return simulated.rings[fd]
}

// simulatedEnter decodes the argument of the call for [SimulatedRing.Enter].
func simulatedEnter(r SimulatedRing, submit, wait, flags uint32, arg unsafe.Pointer) (int, syscall.Errno) {
	c := EnterCall{Submit: submit, Wait: wait, Flags: flags}
	if flags&abi.IORING_ENTER_EXT_ARG != 0 {
		if flags&(abi.IORING_ENTER_EXT_ARG_REG|abi.IORING_ENTER_ABS_TIMER) != 0 || arg == nil {
			return -1, syscall.EINVAL
		}
		if at := (*abi.GeteventsArg)(arg).Ts; at != 0 {
			ts := At[abi.Timespec](at, 1)[0]
			c.Timed, c.Timeout = true, time.Duration(ts.Sec)*time.Second+time.Duration(ts.Nsec)
		}
	}
	n, errno := r.Enter(c)
	if errno != 0 {
		return -1, errno
	}
	return n, 0
}

// closing is called before a descriptor is closed.
func closing(fd int) {
	if simulated.n.Load() == 0 {
		return
	}
	simulated.Lock()
	r := simulated.rings[fd]
	if r != nil {
		delete(simulated.rings, fd)
		simulated.n.Add(-1)
	}
	simulated.Unlock()
	if r != nil {
		r.Close()
	}
}

// simulatedMap maps a simulated ring.
func simulatedMap(r SimulatedRing, off int64, size int) (*Region, error) {
	region, errno := r.Map(off, size)
	if errno != 0 {
		return nil, Error("mmap", errno)
	}
	return noteRegion(&Region{base: region.base, size: region.size}), nil
}

// simulatedAnon is [MapAnon] while there is a simulator.
func simulatedAnon(size int) (*Region, bool) {
	if simulator.Load() == nil {
		return nil, false
	}
	return noteRegion(HeapRegion(size)), true
}

// noteRegion registers a region on Go's heap, which must not be unmapped.
func noteRegion(r *Region) *Region {
	s := simulator.Load()
	if s == nil {
		s = new(Simulator)
	}
	simulated.Lock()
	defer simulated.Unlock()
	simulated.regions = append(simulated.regions, simulatedRegion{r.base, *s})
	return r
}

// simulatedUnmap is [Region.Unmap] for a region on Go's heap, and reports whether p is
// such a region. It overwrites the memory, so that a use after the release is noticed.
func simulatedUnmap(p unsafe.Pointer, n uintptr) bool {
	simulated.Lock()
	i := slices.IndexFunc(simulated.regions, func(r simulatedRegion) bool { return r.base == p })
	if i < 0 {
		simulated.Unlock()
		return false
	}
	by := simulated.regions[i].by
	simulated.regions = slices.Delete(simulated.regions, i, i+1)
	simulated.Unlock()
	if by != nil {
		by.Unmapped(uint64(uintptr(p)), int(n))
	}
	Poison(unsafe.Slice((*byte)(p), n))
	return true
}

// HeapRegion returns a region on Go's heap.
func HeapRegion(size int) *Region {
	words := make([]uint64, (PageCeil(size)+7)/8)
	return &Region{base: unsafe.Pointer(unsafe.SliceData(words)), size: uintptr(len(words) * 8)}
}
