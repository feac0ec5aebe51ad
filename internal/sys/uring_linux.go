// SPDX-License-Identifier: MIT

package sys

import (
	"math/rand/v2"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/abi"
)

// Errors that only Linux has.
const (
	EBADFD = syscall.EBADFD // the ring is disabled
	EBADR  = syscall.EBADR  // completions were lost
	ETIME  = syscall.ETIME  // the timeout has expired
)

// Setup calls io_uring_setup(2). The result is a descriptor with close-on-exec
// set, or, with IORING_SETUP_REGISTERED_FD_ONLY, a registered index.
func Setup(entries uint32, p *abi.Params) (int, syscall.Errno) {
	if Faulty {
		if _, errno := faulty("io_uring_setup", int(entries)); errno != 0 {
			return -1, errno
		}
		if fd, errno, ok := simulatedSetup(entries, p); ok {
			return fd, errno
		}
	}
	fd, _, errno := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(p)), 0)
	if Faulty && errno == 0 {
		faultySetup(int(fd), p)
	}
	return int(fd), errno
}

// Enter calls io_uring_enter(2) and enters Go's scheduler (entersyscall), because the
// call may block.
func Enter(fd int, toSubmit, minComplete, flags uint32, arg unsafe.Pointer, size uintptr) (int, syscall.Errno) {
	if Faulty {
		n, submit, wait, errno := hookedEnter(fd, toSubmit, minComplete, flags, arg)
		if n >= 0 || errno != 0 {
			return n, errno
		}
		toSubmit, minComplete = submit, wait
	}
	n, _, errno := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(toSubmit),
		uintptr(minComplete), uintptr(flags), uintptr(arg), size)
	return int(n), errno
}

// EnterRaw calls io_uring_enter(2) without entering the scheduler. It is for calls that
// do not wait: a blocked call would hold its P. The caller counts it with [RawCalls]. With
// uint32 arguments the compiler would not inline it.
func EnterRaw(fd int, toSubmit, flags uintptr) (int, syscall.Errno) {
	if Faulty {
		n, submit, _, errno := hookedEnter(fd, uint32(toSubmit), 0, uint32(flags), nil)
		if n >= 0 || errno != 0 {
			return n, errno
		}
		toSubmit = uintptr(submit)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), toSubmit, 0, flags, 0, 0)
	return int(n), errno
}

// EnterRawFor is [EnterRaw] with a number of completions, which must have arrived
// already. The number limits the task work that the call runs.
func EnterRawFor(fd int, toSubmit, minComplete, flags uintptr) (int, syscall.Errno) {
	if Faulty {
		n, submit, wait, errno := hookedEnter(fd, uint32(toSubmit), uint32(minComplete), uint32(flags), nil)
		if n >= 0 || errno != 0 {
			return n, errno
		}
		toSubmit, minComplete = uintptr(submit), uintptr(wait)
	}
	n, _, errno := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), toSubmit, minComplete, flags, 0, 0)
	return int(n), errno
}

// quietCalls is the mean number of calls of wakeMonitor between two that wake the monitor.
const quietCalls = 256

// wakeMonitor is called before whatever a goroutine may repeat for long without entering the
// scheduler. One of many calls enters the scheduler.
//
// While all Ps are idle, the runtime's monitor sleeps for up to a minute, and a thread waits for
// network events. If that thread gets one goroutine, and the goroutine then stays busy without
// entering the scheduler, no thread looks for network events, and all other goroutines wait. Any
// system call through the scheduler wakes the monitor (entersyscall of Go 1.26), which looks every
// 10 ms.
func wakeMonitor() {
	if rand.Uint32()%quietCalls == 0 {
		enterScheduler()
	}
}

func enterScheduler() { _, _, _ = syscall.Syscall(unix.SYS_GETTID, 0, 0, 0) }

// RawCalls is wakeMonitor for calls that one goroutine at a time makes. It counts them: a random
// number takes a twentieth of the time of a no-op. The zero value is ready for use.
type RawCalls struct{ n uint32 }

// Next is called before each of the calls.
func (c *RawCalls) Next() {
	if c.due() {
		enterScheduler()
	}
}

// due reports whether the next call is to wake the monitor, as one of quietCalls does.
func (c *RawCalls) due() bool {
	c.n++
	return c.n%quietCalls == 0
}

// Register calls io_uring_register(2).
func Register(fd int, op uint32, arg unsafe.Pointer, n uint32) (int, syscall.Errno) {
	if Faulty {
		if _, errno := faulty("io_uring_register", int(op)); errno != 0 {
			return -1, errno
		}
		if r := simulatedRing(fd, 0); r != nil {
			return r.Register(op, arg, n)
		}
	}
	r, _, errno := syscall.Syscall6(unix.SYS_IO_URING_REGISTER, uintptr(fd), uintptr(op),
		uintptr(arg), uintptr(n), 0, 0)
	return int(r), errno
}

// EnterAt is [Enter] whose argument is an offset into the registered wait
// region.
func EnterAt(fd int, toSubmit, minComplete, flags uint32, off, size uintptr) (int, syscall.Errno) {
	if Faulty {
		n, submit, wait, errno := hookedEnter(fd, toSubmit, minComplete, flags, nil)
		if n >= 0 || errno != 0 {
			return n, errno
		}
		toSubmit, minComplete = submit, wait
	}
	n, _, errno := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(fd), uintptr(toSubmit),
		uintptr(minComplete), uintptr(flags), off, size)
	return int(n), errno
}

// MapRing maps size bytes of a ring's descriptor at one of the
// IORING_OFF_ offsets. The mapping is not inherited by a fork.
func MapRing(fd int, off int64, size int) (*Region, error) {
	if Faulty {
		if r := simulatedRing(fd, 0); r != nil {
			return simulatedMap(r, off, size)
		}
	}
	r, err := mapRegion(fd, off, size, unix.MAP_SHARED|unix.MAP_POPULATE)
	if Faulty && err == nil {
		faultyMap(fd, off, r)
	}
	return r, err
}

// MapAnon maps size bytes of fresh zeroed memory outside of Go's heap. With
// huge it asks for huge pages, rounding the size up to 2 MiB.
func MapAnon(size int, huge bool) (*Region, error) {
	if Faulty {
		if r, ok := simulatedAnon(size); ok {
			return r, nil
		}
	}
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS | unix.MAP_POPULATE
	if huge {
		const hugePage = 2 << 20
		size = (size + hugePage - 1) / hugePage * hugePage
		flags |= unix.MAP_HUGETLB
	}
	return mapRegion(-1, 0, PageCeil(size), flags)
}

func mapRegion(fd int, off int64, size, flags int) (*Region, error) {
	if Faulty {
		if _, errno := faulty("mmap", size); errno != 0 {
			return nil, Error("mmap", errno)
		}
	}
	p, err := unix.MmapPtr(fd, off, nil, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return nil, Error("mmap", err.(syscall.Errno))
	}
	r := &Region{base: p, size: uintptr(size)}
	// A child that shared the rings could submit in our name. Failing is
	// harmless: Go's own fork execs at once.
	_ = unix.Madvise(r.Bytes(), unix.MADV_DONTFORK)
	return r, nil
}

// Unmap releases the memory; the second call does nothing.
func (r *Region) Unmap() error {
	if r == nil || r.base == nil {
		return nil
	}
	p, n := r.base, r.size
	r.base, r.size = nil, 0
	if Faulty && simulatedUnmap(p, n) {
		return nil
	}
	if err := unix.MunmapPtr(p, n); err != nil {
		return Error("munmap", err.(syscall.Errno))
	}
	return nil
}
