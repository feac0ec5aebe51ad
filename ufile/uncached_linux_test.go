// SPDX-License-Identifier: MIT

package ufile

import (
	"runtime/metrics"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
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
	awaitNotInGo(t, before+1)
	fill()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// TestColdReadsGiveTheirPAway: where the page cache is not asked, the submission to the ring begins the
// read. It enters the scheduler, too.
func TestColdReadsGiveTheirPAway(t *testing.T) {
	ringtest.NeedRing(t)
	f := hotFile(t, 1)
	readBlock(t, f, 0)
	f.hits.Store(0)
	f.cold.Store(coldMisses + 1) // the next ones are not looked up
	before := notInGo()
	done := make(chan error, 8)
	for i := uint64(1); f.Stats().Ring == 0; i++ { // the first are plain calls: little else is in flight
		if i > 8 {
			t.Fatal("eight reads at once, and none of them through the ring")
		}
		p, fill := unfilled(t)
		defer func() {
			fill()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}()
		go func() {
			_, err := f.ReadAt(p, 0)
			done <- err
		}()
		awaitNotInGo(t, before+i)
	}
}

// awaitNotInGo waits until so many goroutines are in system calls that entered the scheduler.
func awaitNotInGo(t *testing.T, want uint64) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); notInGo() < want; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Error("a read keeps its P while its thread waits")
			return
		}
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
