// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpRead, kernelRead)
	kernelOp(uring.OpReadv, kernelReadv)
	kernelOp(uring.OpReadFixed, kernelReadFixed)
	kernelOp(uring.OpReadvFixed, kernelReadvFixed)
}

// wantReadAt reads into a new buffer of n bytes and compares the data.
func wantReadAt(t *testing.T, r *uring.Ring, fd uring.FD, n int, off int64, want string) {
	t.Helper()
	buf := make([]byte, n)
	wantRes(t, complete(t, r, func(e *uring.SQE) { e.Read(fd, buf, off) }), len(want))
	if got := string(buf[:len(want)]); got != want {
		t.Fatalf("read %q, want %q", got, want)
	}
}

func kernelRead(t *testing.T) {
	ringtest.NeedOp(t, uring.OpRead, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		wantReadAt(t, r, fdOf(f), 4, 3, "3456")
		wantReadAt(t, r, fdOf(f), 20, 8, "89") // a short read at the end
		wantReadAt(t, r, fdOf(f), 4, 10, "")
		wantReadAt(t, r, fdOf(f), 4, uring.CurrentPosition, "0123")
		wantReadAt(t, r, fdOf(f), 4, uring.CurrentPosition, "4567")
		registerFiles(t, r, -1, int(f.Fd()))
		wantReadAt(t, r, uring.FixedFd(1), 4, 3, "3456")

		buf := make([]byte, 8)
		read := func(fd uring.FD, set func(e *uring.SQE)) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { set(e.Read(fd, buf, 0)) })
		}
		wantErrno(t, read(uring.Fd(unusedFD), func(*uring.SQE) {}), syscall.EBADF)
		wantErrno(t, read(uring.FixedFd(0), func(*uring.SQE) {}), syscall.EBADF)
		// The values of the setters reach the kernel: it refuses each of them.
		wantErrno(t, read(fdOf(f), func(e *uring.SQE) { e.SetRWFlags(1 << 31) }), syscall.EOPNOTSUPP)
		wantErrno(t, read(fdOf(f), func(e *uring.SQE) { e.SetIOPriority(7 << 13) }), syscall.EINVAL)
	})
	t.Run("select", kernelReadSelect)
	t.Run("attributes", kernelReadAttr)
}

func kernelReadSelect(t *testing.T) {
	ringtest.NeedKernel(t, "IORING_REGISTER_PBUF_RING", "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		bufs, err := r.NewBufRing(uring.BufRingOptions{Group: 9, Entries: 4, BufferSize: 6})
		if err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			build func(e *uring.SQE)
			want  string
		}{
			{func(e *uring.SQE) { e.ReadSelect(fdOf(f), 3, 1, 9) }, "123"},
			{func(e *uring.SQE) { e.ReadSelect(fdOf(f), 0, 2, 9) }, "234567"},
			{func(e *uring.SQE) { e.Read(fdOf(f), nil, 5).SetBufferGroup(9) }, "56789"},
		} {
			c := complete(t, r, test.build)
			data, done := bufs.Take(c)
			if string(data) != test.want || !done {
				t.Errorf("completion %+v: %q, %v, want %q", c, data, done, test.want)
			}
		}
		c := complete(t, r, func(e *uring.SQE) { e.ReadSelect(fdOf(f), 3, 0, 10) })
		wantErrno(t, c, syscall.ENOBUFS) // no such group
		if err := bufs.Close(); err != nil {
			t.Error(err)
		}
	})
}

// kernelReadAttr passes protection information for a file that cannot have any: the kernel
// must see it and refuse.
func kernelReadAttr(t *testing.T) {
	ringtest.NeedKernel(t, "IORING_RW_ATTR_FLAG_PI", "6.14")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f, attr, buf := tempFile(t, "0123456789"), new(uring.AttrPI), make([]byte, 8)
		attr.Set(0, 0, 0, make([]byte, 8))
		c := complete(t, r, func(e *uring.SQE) { e.Read(fdOf(f), buf, 0).SetAttr(attr) })
		wantErrno(t, c, syscall.EINVAL)
		// The kernel read the structure: at this address there is none.
		c = complete(t, r, func(e *uring.SQE) { e.Read(fdOf(f), buf, 0).SetAttr(attr).Raw().Addr3 = 8 })
		wantErrno(t, c, syscall.EFAULT)
	})
}

// twoParts returns two buffers and their vector.
func twoParts(a, b int) (first, second []byte, iov []uring.Iovec) {
	first, second = make([]byte, a), make([]byte, b)
	return first, second, []uring.Iovec{uring.NewIovec(first), uring.NewIovec(second)}
}

func kernelReadv(t *testing.T) {
	ringtest.NeedOp(t, uring.OpReadv, "5.1")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		first, second, iov := twoParts(3, 4)
		do := func(fd uring.FD, off int64, flags uring.RWFlags) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Readv(fd, iov, off, flags) })
		}
		wantRes(t, do(fdOf(f), 2, 0), 7)
		if string(first) != "234" || string(second) != "5678" {
			t.Errorf("read %q and %q", first, second)
		}
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), 8, 0), 2)
		if string(first) != "894" {
			t.Errorf("read %q", first)
		}
		wantErrno(t, do(uring.Fd(unusedFD), 0, 0), syscall.EBADF)
		wantErrno(t, do(fdOf(f), 0, 1<<31), syscall.EOPNOTSUPP)
		wantErrno(t, do(fdOf(f), 0, uring.RWHighPri), syscall.EINVAL)
	})
}

func kernelReadFixed(t *testing.T) {
	ringtest.NeedOp(t, uring.OpReadFixed, "5.1")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		buf := registerBuffer(t, r, 4096)
		do := func(fd uring.FD, p []byte, off int64, index uint16) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.ReadFixed(fd, p, off, index) })
		}
		wantRes(t, do(fdOf(f), buf[100:105], 1, 0), 5)
		if got := string(buf[99:106]); got != "\x0012345\x00" {
			t.Errorf("read %q", got)
		}
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), buf, 7, 0), 3)
		wantErrno(t, do(uring.Fd(unusedFD), buf, 0, 0), syscall.EBADF)
		wantErrno(t, do(fdOf(f), buf, 0, 1), syscall.EFAULT)             // no buffer has this index
		wantErrno(t, do(fdOf(f), make([]byte, 8), 0, 0), syscall.EFAULT) // the range is outside of the buffer
	})
}

func kernelReadvFixed(t *testing.T) {
	ringtest.NeedOp(t, uring.OpReadvFixed, "6.15")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		buf := registerBuffer(t, r, 4096)
		iov := []uring.Iovec{uring.NewIovec(buf[1000:1003]), uring.NewIovec(buf[10:14])}
		do := func(fd uring.FD, iov []uring.Iovec, off int64) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.ReadvFixed(fd, iov, off, 0, 0) })
		}
		wantRes(t, do(fdOf(f), iov, 1), 7)
		if string(buf[1000:1003]) != "123" || string(buf[10:14]) != "4567" {
			t.Errorf("read %q and %q", buf[1000:1003], buf[10:14])
		}
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), iov, 8), 2)
		wantErrno(t, do(uring.Fd(unusedFD), iov, 0), syscall.EBADF)
		_, _, outside := twoParts(3, 4)
		wantErrno(t, do(fdOf(f), outside, 0), syscall.EFAULT)
	})
}
