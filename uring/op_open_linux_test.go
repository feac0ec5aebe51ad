// SPDX-License-Identifier: MIT

package uring_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpOpenAt, kernelOpenAt)
	kernelOp(uring.OpOpenAt2, kernelOpenAt2)
	kernelOp(uring.OpClose, kernelClose)
	kernelOp(uring.OpFixedFDInstall, kernelFixedFDInstall)
	kernelOp(uring.OpFilesUpdate, kernelFilesUpdate)
	kernelOp(uring.OpPipe, kernelPipe)
}

// openDir returns an open directory with a file "file" in it.
func openDir(t *testing.T, content string) *os.File {
	t.Helper()
	dir, err := os.Open(filepath.Dir(tempFile(t, content).Name()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dir.Close() })
	return dir
}

// owned returns the descriptor of a completion, now owned by the test.
func owned(t *testing.T, c uring.CQE) *os.File {
	t.Helper()
	if c.Res < 0 {
		t.Fatalf("no descriptor: %v", c.Err())
	}
	f := os.NewFile(uintptr(c.Res), "descriptor of a completion")
	t.Cleanup(func() { f.Close() })
	return f
}

func closesOnExec(t *testing.T, f *os.File) bool {
	t.Helper()
	flags, err := unix.FcntlInt(f.Fd(), unix.F_GETFD, 0)
	if err != nil {
		t.Fatal(err)
	}
	return flags&unix.FD_CLOEXEC != 0
}

func kernelOpenAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpOpenAt, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		dir := openDir(t, "content")
		open := func(dir int, path string, flags int, mode uint32) uring.CQE {
			p := mustPath(path)
			return complete(t, r, func(e *uring.SQE) { e.OpenAt(dir, p, flags, mode) })
		}
		f := owned(t, open(int(dir.Fd()), "file", unix.O_RDONLY|unix.O_CLOEXEC, 0))
		wantReadAt(t, r, fdOf(f), 20, 0, "content")
		if !closesOnExec(t, f) {
			t.Error("O_CLOEXEC is not set")
		}
		name := filepath.Join(dir.Name(), "new")
		f = owned(t, open(uring.AtCWD, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600))
		if _, err := f.WriteString("written"); err != nil {
			t.Fatal(err)
		}
		wantContent(t, name, "written")
		if st, err := os.Stat(name); err != nil || st.Mode() != 0o600 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		wantErrno(t, open(uring.AtCWD, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600), syscall.EEXIST)
		wantErrno(t, open(int(dir.Fd()), "missing", 0, 0), syscall.ENOENT)
		wantErrno(t, open(unusedFD, "file", 0, 0), syscall.EBADF)
	})
	t.Run("direct", func(t *testing.T) {
		overTables(t, func(t *testing.T, r *uring.Ring) {
			dir, p := openDir(t, "content"), mustPath("file")
			checkDirectOpen(t, r, func(e *uring.SQE, flags int, slot uring.Slot) {
				e.OpenAt(int(dir.Fd()), p, flags, 0).SetSlot(slot)
			})
		})
	})
}

// overTables is OverFlavours with an empty fixed file table of four slots.
func overTables(t *testing.T, test func(t *testing.T, r *uring.Ring)) {
	ringtest.NeedKernel(t, "direct descriptors in a sparse table", "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		if err := r.RegisterFilesSparse(4); err != nil {
			t.Fatal(err)
		}
		test(t, r)
	})
}

// checkDirectOpen opens a file that holds "content" into slots.
func checkDirectOpen(t *testing.T, r *uring.Ring, build func(e *uring.SQE, flags int, slot uring.Slot)) {
	t.Helper()
	open := func(flags int, slot uring.Slot) uring.CQE {
		return complete(t, r, func(e *uring.SQE) { build(e, flags, slot) })
	}
	wantRes(t, open(0, 0), 0)
	wantReadAt(t, r, uring.FixedFd(0), 20, 0, "content")
	wantRes(t, open(0, 2), 0)
	wantReadAt(t, r, uring.FixedFd(2), 20, 3, "tent")
	wantSlots(t, []int32{1, 3}, open(0, uring.SlotAuto).Res, open(0, uring.SlotAuto).Res)
	wantReadAt(t, r, uring.FixedFd(1), 20, 0, "content")
	wantReadAt(t, r, uring.FixedFd(3), 20, 3, "tent")
	wantErrno(t, open(0, uring.SlotAuto), syscall.ENFILE)
	wantErrno(t, open(0, 4), syscall.EINVAL)
	wantErrno(t, open(0, uring.SlotAuto-1), syscall.EINVAL)
	wantErrno(t, open(unix.O_CLOEXEC, 0), syscall.EINVAL)
}

// wantSlots checks that the kernel took each of its slots from the free ones, and none
// twice. The order is not specified.
func wantSlots(t *testing.T, free []int32, got ...int32) {
	t.Helper()
	left := slices.Clone(free)
	for _, slot := range got {
		i := slices.Index(left, slot)
		if i < 0 {
			t.Fatalf("the kernel took slots %v, free were %v", got, free)
		}
		left = slices.Delete(left, i, i+1)
	}
}

func kernelOpenAt2(t *testing.T) {
	ringtest.NeedOp(t, uring.OpOpenAt2, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		dir := openDir(t, "content")
		open := func(path string, how uring.OpenHow) uring.CQE {
			p := mustPath(path)
			return complete(t, r, func(e *uring.SQE) { e.OpenAt2(int(dir.Fd()), p, &how) })
		}
		f := owned(t, open("file", uring.OpenHow{Flags: unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH}))
		wantReadAt(t, r, fdOf(f), 20, 0, "content")
		owned(t, open("new", uring.OpenHow{Flags: unix.O_CREAT | unix.O_RDWR | unix.O_CLOEXEC, Mode: 0o640}))
		if st, err := os.Stat(filepath.Join(dir.Name(), "new")); err != nil || st.Mode()&0o700 != 0o600 {
			t.Errorf("mode %v, %v", st.Mode(), err)
		}
		wantErrno(t, open("../x", uring.OpenHow{Resolve: unix.RESOLVE_BENEATH}), syscall.EXDEV)
		wantErrno(t, open("missing", uring.OpenHow{}), syscall.ENOENT)
		wantErrno(t, open("file", uring.OpenHow{Mode: 0o600}), syscall.EINVAL) // a mode without O_CREAT
	})
	t.Run("direct", func(t *testing.T) {
		overTables(t, func(t *testing.T, r *uring.Ring) {
			dir, p := openDir(t, "content"), mustPath("file")
			checkDirectOpen(t, r, func(e *uring.SQE, flags int, slot uring.Slot) {
				e.OpenAt2(int(dir.Fd()), p, &uring.OpenHow{Flags: uint64(flags)}).SetSlot(slot)
			})
		})
	})
}

func kernelClose(t *testing.T) {
	ringtest.NeedOp(t, uring.OpClose, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, wr := osPipe(t)
		dup, err := unix.FcntlInt(wr.Fd(), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			t.Fatal(err)
		}
		wr.Close()
		wantRes(t, complete(t, r, func(e *uring.SQE) { e.Close(dup) }), 0)
		// The pipe has no writer left: the closed descriptor was the last one.
		if n, err := rd.Read(make([]byte, 1)); n != 0 || err != io.EOF {
			t.Errorf("read %d, %v", n, err)
		}
		wantErrno(t, complete(t, r, func(e *uring.SQE) { e.Close(unusedFD) }), syscall.EBADF)
	})
	t.Run("direct", func(t *testing.T) {
		overTables(t, func(t *testing.T, r *uring.Ring) {
			f := tempFile(t, "content")
			if _, err := r.UpdateFiles(0, []int{int(f.Fd()), -1, int(f.Fd())}); err != nil {
				t.Fatal(err)
			}
			for _, slot := range []int{0, 2} {
				wantReadAt(t, r, uring.FixedFd(slot), 20, 0, "content")
				wantRes(t, complete(t, r, func(e *uring.SQE) { e.CloseDirect(slot) }), 0)
				wantErrno(t, complete(t, r, func(e *uring.SQE) { e.Fsync(uring.FixedFd(slot), false) }), syscall.EBADF)
				wantErrno(t, complete(t, r, func(e *uring.SQE) { e.CloseDirect(slot) }), syscall.EBADF)
			}
			wantErrno(t, complete(t, r, func(e *uring.SQE) { e.CloseDirect(-1) }), syscall.EINVAL)
		})
	})
}

func kernelFixedFDInstall(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFixedFDInstall, "6.8")
	overTables(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "content")
		if _, err := r.UpdateFiles(2, []int{int(f.Fd())}); err != nil {
			t.Fatal(err)
		}
		f.Close()
		for _, keep := range []bool{false, true} {
			f := owned(t, complete(t, r, func(e *uring.SQE) { e.FixedFDInstall(2, keep) }))
			wantReadAt(t, r, fdOf(f), 20, 0, "content")
			if closesOnExec(t, f) == keep {
				t.Errorf("kept on exec: %v, want %v", !keep, keep)
			}
		}
		wantErrno(t, complete(t, r, func(e *uring.SQE) { e.FixedFDInstall(1, false) }), syscall.EBADF)
	})
}

func kernelFilesUpdate(t *testing.T) {
	ringtest.NeedOp(t, uring.OpFilesUpdate, "5.6")
	overTables(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "content")
		fd := int32(f.Fd())
		update := func(first int, fds ...int32) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.FilesUpdate(fds, first) })
		}
		wantRes(t, update(1, fd, fd), 2)
		wantReadAt(t, r, uring.FixedFd(1), 20, 0, "content")
		wantReadAt(t, r, uring.FixedFd(2), 20, 3, "tent")
		wantRes(t, update(1, -1, uring.SkipFile), 2)
		wantErrno(t, complete(t, r, func(e *uring.SQE) { e.Fsync(uring.FixedFd(1), false) }), syscall.EBADF)
		wantReadAt(t, r, uring.FixedFd(2), 20, 3, "tent")
		wantErrno(t, update(0, unusedFD), syscall.EBADF)
		wantErrno(t, update(4, fd), syscall.EINVAL)

		fds := []int32{fd, fd}
		wantRes(t, update(uring.FilesAlloc, fds...), 2)
		wantSlots(t, []int32{0, 1, 3}, fds...)
		for _, slot := range fds {
			wantReadAt(t, r, uring.FixedFd(int(slot)), 20, 0, "content")
		}
	})
}

func kernelPipe(t *testing.T) {
	ringtest.NeedOp(t, uring.OpPipe, "6.16")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		fds := new([2]int32)
		pipe := func(flags uint32) uring.CQE {
			return complete(t, r, func(e *uring.SQE) { e.Pipe(fds, flags) })
		}
		wantRes(t, pipe(unix.O_CLOEXEC|unix.O_NONBLOCK), 0)
		rd, wr := owned(t, uring.CQE{Res: fds[0]}), owned(t, uring.CQE{Res: fds[1]})
		if !closesOnExec(t, rd) || !closesOnExec(t, wr) {
			t.Error("O_CLOEXEC is not set")
		}
		if _, err := unix.Read(int(fds[0]), make([]byte, 1)); err != unix.EAGAIN {
			t.Errorf("O_NONBLOCK is not set: %v", err)
		}
		checkPipe(t, r, uring.Fd(int(fds[0])), uring.Fd(int(fds[1])))
		wantErrno(t, pipe(unix.O_APPEND), syscall.EINVAL)
	})
	t.Run("direct", func(t *testing.T) {
		overTables(t, func(t *testing.T, r *uring.Ring) {
			fds := &[2]int32{-1, -1}
			pipe := func(flags uint32, slot uring.Slot) uring.CQE {
				return complete(t, r, func(e *uring.SQE) { e.Pipe(fds, flags).SetSlot(slot) })
			}
			wantRes(t, pipe(0, 1), 0)
			checkPipe(t, r, uring.FixedFd(1), uring.FixedFd(2))
			wantRes(t, pipe(0, uring.SlotAuto), 0)
			wantSlots(t, []int32{0, 3}, fds[:]...)
			checkPipe(t, r, uring.FixedFd(int(fds[0])), uring.FixedFd(int(fds[1])))
			wantErrno(t, pipe(0, uring.SlotAuto), syscall.ENFILE)
			wantErrno(t, pipe(unix.O_CLOEXEC, 1), syscall.EINVAL)
		})
	})
}

// checkPipe sends data through a pipe.
func checkPipe(t *testing.T, r *uring.Ring, rd, wr uring.FD) {
	t.Helper()
	sent := []byte("through")
	wantRes(t, complete(t, r, func(e *uring.SQE) { e.Write(wr, sent, uring.CurrentPosition) }), len(sent))
	wantReadAt(t, r, rd, 20, uring.CurrentPosition, "through")
}
