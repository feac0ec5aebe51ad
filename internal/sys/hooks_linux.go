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
