// SPDX-License-Identifier: MIT

package uring_test

import (
	"os"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpFsync, kernelFsync)
	kernelOp(uring.OpSyncFileRange, kernelSyncFileRange)
	kernelOp(uring.OpFallocate, kernelFallocate)
	kernelOp(uring.OpFtruncate, kernelFtruncate)
}

func kernelFsync(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFsync, "5.1")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		registerFiles(t, r, int(f.Fd()))
		_, pipe := osPipe(t)
		for _, dataOnly := range []bool{false, true} {
			fsync := func(fd uring.FD) uring.CQE {
				return complete(t, r, func(e *uring.SQE) { e.Fsync(fd, dataOnly) })
			}
			wantRes(t, fsync(fdOf(f)), 0)
			wantRes(t, fsync(uring.FixedFd(0)), 0)
			wantErrno(t, fsync(fdOf(pipe)), syscall.EINVAL)
			wantErrno(t, fsync(uring.Fd(unusedFD)), syscall.EBADF)
			for _, n := range []uint32{0, 4} {
				c := complete(t, r, func(e *uring.SQE) { e.FsyncRange(fdOf(f), 2, n, dataOnly) })
				wantRes(t, c, 0)
			}
		}
	})
}

func kernelSyncFileRange(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSyncFileRange, "5.2")
	const flags = unix.SYNC_FILE_RANGE_WAIT_BEFORE | unix.SYNC_FILE_RANGE_WRITE | unix.SYNC_FILE_RANGE_WAIT_AFTER
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		registerFiles(t, r, int(f.Fd()))
		_, pipe := osPipe(t)
		sync := func(fd uring.FD, off int64, n, flags uint32) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.SyncFileRange(fd, off, n, flags) })
		}
		wantRes(t, sync(fdOf(f), 2, 4, flags), 0)
		wantRes(t, sync(uring.FixedFd(0), 0, 0, unix.SYNC_FILE_RANGE_WRITE), 0)
		wantErrno(t, sync(fdOf(f), 2, 4, 1<<5), syscall.EINVAL)
		wantErrno(t, sync(fdOf(f), -1, 4, flags), syscall.EINVAL)
		wantErrno(t, sync(fdOf(pipe), 0, 4, flags), syscall.ESPIPE)
	})
}

func sizeOf(t *testing.T, f *os.File) int64 {
	t.Helper()
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	return st.Size()
}

func kernelFallocate(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFallocate, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		if err := unix.Fallocate(int(f.Fd()), 0, 0, 1); err == unix.EOPNOTSUPP {
			t.Skip("needs a file system with fallocate")
		}
		registerFiles(t, r, int(f.Fd()))
		allocate := func(fd uring.FD, mode uint32, off, n int64) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Fallocate(fd, mode, off, n) })
		}
		wantRes(t, allocate(fdOf(f), unix.FALLOC_FL_KEEP_SIZE, 8192, 4096), 0)
		if n := sizeOf(t, f); n != 10 {
			t.Errorf("size %d, want it unchanged", n)
		}
		wantRes(t, allocate(uring.FixedFd(0), 0, 4, 10), 0)
		wantContent(t, f.Name(), "0123456789\x00\x00\x00\x00")
		wantErrno(t, allocate(fdOf(f), 0, 0, 0), syscall.EINVAL)
		wantErrno(t, allocate(fdOf(readOnly(t, f)), 0, 0, 20), syscall.EBADF)
	})
}

func kernelFtruncate(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFtruncate, "6.9")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		registerFiles(t, r, int(f.Fd()))
		truncate := func(fd uring.FD, n int64) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Ftruncate(fd, n) })
		}
		wantRes(t, truncate(fdOf(f), 4), 0)
		wantContent(t, f.Name(), "0123")
		wantRes(t, truncate(uring.FixedFd(0), 6), 0)
		wantContent(t, f.Name(), "0123\x00\x00")
		wantErrno(t, truncate(fdOf(readOnly(t, f)), 1), syscall.EINVAL)
		wantErrno(t, truncate(fdOf(f), -1), syscall.EINVAL)
		wantErrno(t, truncate(uring.Fd(unusedFD), 1), syscall.EBADF)
		wantContent(t, f.Name(), "0123\x00\x00")
	})
}
