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

// Simulator is what a test puts in the place of the kernel's rings in builds that
// are [Faulty]: where [Faults] are asked before a call, it answers. What it opens
// has memory of Go's heap in the place of mappings, so that the race detector sees
// what the kernel's half of a ring does.
type Simulator interface {
	// Setup is io_uring_setup(2). The descriptor is the process's, who closes it.
	Setup(entries uint32, p *abi.Params) (fd int, r SimulatedRing, errno syscall.Errno)
	// Unmapped is told that memory is given back, which nothing in flight may use.
	Unmapped(addr uint64, size int)
}

// SimulatedRing answers the calls on a descriptor of [Simulator.Setup].
type SimulatedRing interface {
	Enter(c EnterCall) (int, syscall.Errno)
	Register(op uint32, arg unsafe.Pointer, n uint32) (int, syscall.Errno)
	// Map is mmap(2) of the descriptor: see [HeapRegion].
	Map(off int64, size int) (*Region, syscall.Errno)
	// Close is told before the descriptor is closed.
	Close()
}

// EnterCall is a call of io_uring_enter(2).
type EnterCall struct {
	Submit, Wait, Flags uint32
	Timed               bool // the wait is bounded
	Timeout             time.Duration
}

var simulator atomic.Pointer[Simulator]

// SetSimulator lets s answer for rings that are opened from here on, or the
// kernel when it is nil. Rings that are open stay whose they are.
func SetSimulator(s Simulator) {
	if s == nil {
		simulator.Store(nil)
		return
	}
	simulator.Store(&s)
}

// simulated are the rings that are not the kernel's, and memory that is not
// mapped.
var simulated struct {
	n atomic.Int32 // of rings
	sync.Mutex
	rings   map[int]SimulatedRing
	regions []simulatedRegion
}

type simulatedRegion struct {
	base unsafe.Pointer
	by   Simulator
}

// simulatedSetup opens a ring of the simulator's, if there is one.
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

// simulatedRing returns the ring of a descriptor, nil when it is the kernel's.
func simulatedRing(fd int, flags uint32) SimulatedRing {
	if simulated.n.Load() == 0 || flags&abi.IORING_ENTER_REGISTERED_RING != 0 {
		return nil
	}
	simulated.Lock()
	defer simulated.Unlock()
	return simulated.rings[fd]
}

// simulatedEnter is [SimulatedRing.Enter] with the argument of the call.
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

// closing is told that a descriptor is about to be closed.
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

// simulatedAnon is [MapAnon] for what belongs to rings that are simulated.
func simulatedAnon(size int) (*Region, bool) {
	if simulator.Load() == nil {
		return nil, false
	}
	return noteRegion(HeapRegion(size)), true
}

// noteRegion notes a region that must not be unmapped.
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

// simulatedUnmap is [Region.Unmap] of such a region, and reports whether it was one.
// Who goes on using it sees other bytes.
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

// HeapRegion returns memory of Go's heap in the place of a mapping.
func HeapRegion(size int) *Region {
	words := make([]uint64, (PageCeil(size)+7)/8)
	return &Region{base: unsafe.Pointer(unsafe.SliceData(words)), size: uintptr(len(words) * 8)}
}
