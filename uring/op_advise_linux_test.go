// SPDX-License-Identifier: MIT

package uring_test

import (
	"strconv"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpFadvise, kernelFadvise)
	kernelOp(uring.OpMadvise, kernelMadvise)
}

func kernelFadvise(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFadvise, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) { checkFadvise(t, r, 1<<32-1) })
	t.Run("64 bits", func(t *testing.T) {
		ringtest.NeedKernel(t, "64-bit lengths of FADVISE", "6.10")
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) { checkFadvise(t, r, 1<<33) })
	})
}

func checkFadvise(t *testing.T, r *uring.Ring, long int64) {
	t.Helper()
	f := tempFile(t, "0123456789")
	registerFiles(t, r, int(f.Fd()))
	advise := func(fd uring.FD, off, n int64, advice int) uring.CQE {
		return complete(t, r, func(e *uring.SQE) { e.Fadvise(fd, off, n, advice) })
	}
	for _, advice := range []int{unix.FADV_SEQUENTIAL, unix.FADV_WILLNEED, unix.FADV_DONTNEED} {
		wantRes(t, advise(fdOf(f), 0, long, advice), 0)
		wantRes(t, advise(uring.FixedFd(0), 4, 0, advice), 0)
	}
	wantReadAt(t, r, fdOf(f), 20, 0, "0123456789")
	rd, _ := osPipe(t)
	wantErrno(t, advise(fdOf(rd), 0, long, unix.FADV_WILLNEED), syscall.ESPIPE)
	wantErrno(t, advise(fdOf(f), 0, long, 99), syscall.EINVAL)
	wantErrno(t, advise(uring.Fd(unusedFD), 0, long, 0), syscall.EBADF)
}

func kernelMadvise(t *testing.T) {
	ringtest.NeedOp(t, uring.OpMadvise, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		page := unix.Getpagesize()
		mem, err := unix.Mmap(-1, 0, 2*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Munmap(mem)
		mem[0], mem[page] = 1, 2
		advise := func(p []byte, advice int) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Madvise(p, advice) })
		}
		wantRes(t, advise(mem[page:], unix.MADV_DONTNEED), 0)
		if mem[0] != 1 || mem[page] != 0 {
			t.Errorf("pages begin with %d and %d, the second should be gone", mem[0], mem[page])
		}
		wantErrno(t, advise(mem[1:], unix.MADV_DONTNEED), syscall.EINVAL)
		wantErrno(t, advise(mem, 9999), syscall.EINVAL)
	})
	t.Run("beyond 4 GiB", func(t *testing.T) {
		if strconv.IntSize == 32 {
			t.Skip("no buffer is that long here")
		}
		ringtest.NeedKernel(t, "64-bit lengths of MADVISE", "6.10")
		page, size := unix.Getpagesize(), uint64(5)<<30
		mem, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			t.Skipf("needs 5 GiB of addresses: %v", err)
		}
		defer unix.Munmap(mem)
		last := mem[len(mem)-page:]
		last[0], mem[0] = 1, 2
		r := ctlRing(t, uring.Options{})
		wantRes(t, complete(t, r, func(e *uring.SQE) { e.Madvise(mem, unix.MADV_DONTNEED) }), 0)
		if last[0] != 0 || mem[0] != 0 {
			t.Errorf("the first page begins with %d, the last one with %d: both should be gone", mem[0], last[0])
		}
	})
}
