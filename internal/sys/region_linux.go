// SPDX-License-Identifier: MIT

package sys

import (
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

func pageSize() int { return os.Getpagesize() }

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
