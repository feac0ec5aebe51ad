// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpWrite, kernelWrite)
	kernelOp(uring.OpWritev, kernelWritev)
	kernelOp(uring.OpWriteFixed, kernelWriteFixed)
	kernelOp(uring.OpWritevFixed, kernelWritevFixed)
}

func kernelWrite(t *testing.T) {
	ringtest.NeedOp(t, uring.OpWrite, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		write := func(fd uring.FD, p string, off int64, flags uring.RWFlags) uring.CQE {
			buf := []byte(p)
			return complete(t, r, func(e *uring.SQE) { e.Write(fd, buf, off).SetRWFlags(flags) })
		}
		wantRes(t, write(fdOf(f), "abc", 3, 0), 3)
		wantContent(t, f.Name(), "012abc6789")
		wantRes(t, write(fdOf(f), "AB", uring.CurrentPosition, uring.RWDSync), 2)
		wantRes(t, write(fdOf(f), "C", uring.CurrentPosition, uring.RWSync), 1)
		wantContent(t, f.Name(), "ABCabc6789")
		wantRes(t, write(fdOf(f), "end", 0, uring.RWAppend), 3)
		wantContent(t, f.Name(), "ABCabc6789end")
		registerFiles(t, r, -1, -1, int(f.Fd()))
		wantRes(t, write(uring.FixedFd(2), "--", 11, 0), 2)
		wantContent(t, f.Name(), "ABCabc6789e--")

		wantErrno(t, write(fdOf(readOnly(t, f)), "x", 0, 0), syscall.EBADF)
		wantErrno(t, write(uring.Fd(unusedFD), "x", 0, 0), syscall.EBADF)
		wantErrno(t, write(fdOf(f), "x", 0, 1<<31), syscall.EOPNOTSUPP)
		wantContent(t, f.Name(), "ABCabc6789e--")
	})
}

func kernelWritev(t *testing.T) {
	ringtest.NeedOp(t, uring.OpWritev, "5.1")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		iov := []uring.Iovec{uring.NewIovec([]byte("ab")), uring.NewIovec(nil), uring.NewIovec([]byte("cde"))}
		do := func(fd uring.FD, off int64, flags uring.RWFlags) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Writev(fd, iov, off, flags) })
		}
		wantRes(t, do(fdOf(f), 1, uring.RWDSync), 5)
		wantContent(t, f.Name(), "0abcde6789")
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), 0, uring.RWAppend), 5)
		wantContent(t, f.Name(), "0abcde6789abcde")
		wantErrno(t, do(fdOf(readOnly(t, f)), 0, 0), syscall.EBADF)
	})
}

func kernelWriteFixed(t *testing.T) {
	ringtest.NeedOp(t, uring.OpWriteFixed, "5.1")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		buf := registerBuffer(t, r, 4096)
		copy(buf[50:], "abcdef")
		outside := []byte("outside")
		do := func(fd uring.FD, p []byte, off int64, index uint16) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.WriteFixed(fd, p, off, index) })
		}
		wantRes(t, do(fdOf(f), buf[51:54], 2, 0), 3)
		wantContent(t, f.Name(), "01bcd56789")
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), buf[50:52], 10, 0), 2)
		wantContent(t, f.Name(), "01bcd56789ab")
		wantErrno(t, do(fdOf(readOnly(t, f)), buf, 0, 0), syscall.EBADF)
		wantErrno(t, do(fdOf(f), buf, 0, 1), syscall.EFAULT)
		wantErrno(t, do(fdOf(f), outside, 0, 0), syscall.EFAULT)
	})
}

func kernelWritevFixed(t *testing.T) {
	ringtest.NeedOp(t, uring.OpWritevFixed, "6.15")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		buf := registerBuffer(t, r, 4096)
		copy(buf[50:], "abcdef")
		iov := []uring.Iovec{uring.NewIovec(buf[54:56]), uring.NewIovec(buf[50:51])}
		do := func(fd uring.FD, off int64, flags uring.RWFlags, index uint16) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.WritevFixed(fd, iov, off, flags, index) })
		}
		wantRes(t, do(fdOf(f), 3, 0, 0), 3)
		wantContent(t, f.Name(), "012efa6789")
		registerFiles(t, r, int(f.Fd()))
		wantRes(t, do(uring.FixedFd(0), 0, uring.RWAppend, 0), 3)
		wantContent(t, f.Name(), "012efa6789efa")
		wantErrno(t, do(fdOf(readOnly(t, f)), 0, 0, 0), syscall.EBADF)
		wantErrno(t, do(fdOf(f), 0, 0, 1), syscall.EFAULT)
	})
}
