// SPDX-License-Identifier: MIT

package ufile

import (
	"runtime/metrics"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// TestUncachedReadsGiveTheirPAway: a read of a file whose last read was not cached asks the page cache
// by a call that enters Go's scheduler. A thread that the kernel stops in it does not keep its P.
//
// The thread stops where the kernel copies to memory that has no pages, until the test adds one.
func TestUncachedReadsGiveTheirPAway(t *testing.T) {
	f := hotFile(t, 1)
	p, fill := unfilled(t)
	f.hits.Store(0)
	before := notInGo()
	done := make(chan error, 1)
	go func() {
		_, err := f.ReadAt(p, 0)
		done <- err
	}()
	deadline := time.Now().Add(10 * time.Second)
	for notInGo() <= before && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	if notInGo() <= before {
		t.Error("the read keeps its P while its thread waits")
	}
	fill()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// notInGo returns how many goroutines are in system calls that entered the scheduler.
func notInGo() uint64 {
	s := []metrics.Sample{{Name: "/sched/goroutines/not-in-go:goroutines"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// unfilled returns a page of memory at whose first use a thread waits until fill is called.
func unfilled(t *testing.T) (p []byte, fill func()) {
	t.Helper()
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		t.Skipf("needs userfaultfd(2), as root: %v", errno)
	}
	t.Cleanup(func() { unix.Close(int(fd)) })
	p, err := unix.Mmap(-1, 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Munmap(p) })
	const api, register, zeroPage = 0xc018aa3f, 0xc020aa00, 0xc020aa04
	control := func(request uintptr, arg *[4]uint64) {
		t.Helper()
		if _, _, errno := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatalf("ioctl of userfaultfd: %v", errno)
		}
	}
	begin, size := uint64(uintptr(unsafe.Pointer(&p[0]))), uint64(len(p))
	control(api, &[4]uint64{0xaa})
	control(register, &[4]uint64{begin, size, 1})
	return p, func() { control(zeroPage, &[4]uint64{begin, size}) }
}
