// SPDX-License-Identifier: MIT

package uring_test

import (
	"io"
	"os"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpSplice, kernelSplice)
	kernelOp(uring.OpTee, kernelTee)
}

// wantInPipe reads the expected data from a pipe.
func wantInPipe(t *testing.T, rd *os.File, want string) {
	t.Helper()
	buf := make([]byte, len(want))
	if _, err := io.ReadFull(rd, buf); err != nil || string(buf) != want {
		t.Fatalf("the pipe holds %q, %v, want %q", buf, err, want)
	}
}

func kernelSplice(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSplice, "5.7")
	const pos = uring.CurrentPosition
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		src, dst := tempFile(t, "0123456789"), tempFile(t, "abcdefghij")
		rd, wr := osPipe(t)
		splice := func(in uring.FD, inOff int64, out uring.FD, outOff int64, n int) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Splice(in, inOff, out, outOff, n, uring.SpliceMove) })
		}
		wantRes(t, splice(fdOf(src), 2, fdOf(wr), pos, 4), 4)
		wantInPipe(t, rd, "2345")
		wantRes(t, splice(fdOf(src), pos, fdOf(wr), pos, 3), 3) // with an offset, the file position does not change
		wantRes(t, splice(fdOf(rd), pos, fdOf(dst), 1, 20), 3)
		wantContent(t, dst.Name(), "a012efghij")

		registerFiles(t, r, int(src.Fd()), int(wr.Fd()), int(rd.Fd()), int(dst.Fd()))
		wantRes(t, splice(uring.FixedFd(0), 8, fdOf(wr), pos, 20), 2)
		wantInPipe(t, rd, "89")
		wantRes(t, splice(fdOf(src), 7, uring.FixedFd(1), pos, 20), 3)
		wantRes(t, splice(uring.FixedFd(2), pos, uring.FixedFd(3), 0, 20), 3)
		wantContent(t, dst.Name(), "7892efghij")

		wantErrno(t, splice(fdOf(src), 0, fdOf(dst), 0, 4), syscall.EINVAL) // neither end is a pipe
		wantErrno(t, splice(fdOf(src), 0, fdOf(wr), 0, 4), syscall.ESPIPE)  // a pipe with an offset
		wantErrno(t, splice(uring.Fd(unusedFD), 0, fdOf(wr), pos, 4), syscall.EBADF)
	})
}

func kernelTee(t *testing.T) {
	ringtest.NeedOp(t, uring.OpTee, "5.8")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "content")
		rd1, wr1 := osPipe(t)
		rd2, wr2 := osPipe(t)
		if _, err := wr1.WriteString("0123456789"); err != nil {
			t.Fatal(err)
		}
		tee := func(in, out uring.FD, n int) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Tee(in, out, n, uring.SpliceNonblock) })
		}
		wantRes(t, tee(fdOf(rd1), fdOf(wr2), 4), 4)
		wantInPipe(t, rd2, "0123")
		registerFiles(t, r, int(rd1.Fd()), int(wr2.Fd()))
		wantRes(t, tee(uring.FixedFd(0), fdOf(wr2), 3), 3)
		wantRes(t, tee(fdOf(rd1), uring.FixedFd(1), 2), 2)
		wantInPipe(t, rd2, "01201")
		wantInPipe(t, rd1, "0123456789") // tee consumed nothing
		wantErrno(t, tee(fdOf(f), fdOf(wr2), 4), syscall.EINVAL)
		wantErrno(t, tee(uring.Fd(unusedFD), fdOf(wr2), 4), syscall.EBADF)
	})
}
