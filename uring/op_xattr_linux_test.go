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
	kernelOp(uring.OpFsetxattr, kernelFsetxattr)
	kernelOp(uring.OpSetxattr, kernelSetxattr)
	kernelOp(uring.OpFgetxattr, kernelFgetxattr)
	kernelOp(uring.OpGetxattr, kernelGetxattr)
}

// overXattrs runs test with a file that has the attribute user.one = "value".
func overXattrs(t *testing.T, op uring.Op, test func(t *testing.T, r *uring.Ring, f *os.File)) {
	ringtest.NeedOp(t, op, "5.19")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "content")
		switch err := unix.Setxattr(f.Name(), "user.one", []byte("value"), 0); err {
		case nil:
		case unix.EOPNOTSUPP:
			t.Skip("needs user xattrs: this file system has none")
		default:
			t.Fatal(err)
		}
		registerFiles(t, r, int(f.Fd()))
		test(t, r, f)
	})
}

func wantXattr(t *testing.T, f *os.File, name, want string) {
	t.Helper()
	buf := make([]byte, 100)
	n, err := unix.Getxattr(f.Name(), name, buf)
	if err != nil || string(buf[:n]) != want {
		t.Errorf("%s is %q, %v, want %q", name, buf[:max(n, 0)], err, want)
	}
}

// checkSetters tries an operation that sets attributes.
func checkSetters(t *testing.T, f *os.File, set func(name, value string, flags int) uring.CQE) {
	t.Helper()
	wantRes(t, set("user.two", "new", unix.XATTR_CREATE), 0)
	wantXattr(t, f, "user.two", "new")
	wantRes(t, set("user.one", "changed", 0), 0)
	wantXattr(t, f, "user.one", "changed")
	wantRes(t, set("user.one", "", unix.XATTR_REPLACE), 0)
	wantXattr(t, f, "user.one", "")
	wantErrno(t, set("user.two", "x", unix.XATTR_CREATE), syscall.EEXIST)
	wantErrno(t, set("user.three", "x", unix.XATTR_REPLACE), syscall.ENODATA)
	wantXattr(t, f, "user.two", "new")
}

func kernelFsetxattr(t *testing.T) {
	overXattrs(t, uring.OpFsetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
		fd := fdOf(f)
		set := func(name, value string, flags int) uring.CQE {
			n, v := mustPath(name), []byte(value)
			return complete(t, r, func(e *uring.SQE) { e.Fsetxattr(fd, n, v, flags) })
		}
		checkSetters(t, f, set)
		fd = uring.Fd(unusedFD)
		wantErrno(t, set("user.two", "x", 0), syscall.EBADF)
	})
	t.Run("fixed file", func(t *testing.T) {
		ringtest.NeedKernel(t, "xattr operations on fixed files", "6.13")
		overXattrs(t, uring.OpFsetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
			checkSetters(t, f, func(name, value string, flags int) uring.CQE {
				n, v := mustPath(name), []byte(value)
				return complete(t, r, func(e *uring.SQE) { e.Fsetxattr(uring.FixedFd(0), n, v, flags) })
			})
		})
	})
}

func kernelSetxattr(t *testing.T) {
	overXattrs(t, uring.OpSetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
		path := f.Name()
		set := func(name, value string, flags int) uring.CQE {
			p, n, v := mustPath(path), mustPath(name), []byte(value)
			return complete(t, r, func(e *uring.SQE) { e.Setxattr(p, n, v, flags) })
		}
		checkSetters(t, f, set)
		path += ".missing"
		wantErrno(t, set("user.two", "x", 0), syscall.ENOENT)
	})
}

// checkGetters tries an operation that reads attributes.
func checkGetters(t *testing.T, get func(name string, buf []byte) uring.CQE) {
	t.Helper()
	buf := make([]byte, 20)
	wantRes(t, get("user.one", buf), len("value"))
	if got := string(buf[:6]); got != "value\x00" {
		t.Errorf("value %q", got)
	}
	wantRes(t, get("user.one", nil), len("value"))
	wantErrno(t, get("user.one", buf[:2]), syscall.ERANGE)
	wantErrno(t, get("user.none", buf), syscall.ENODATA)
}

func kernelFgetxattr(t *testing.T) {
	overXattrs(t, uring.OpFgetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
		fd := fdOf(f)
		get := func(name string, buf []byte) uring.CQE {
			n := mustPath(name)
			return complete(t, r, func(e *uring.SQE) { e.Fgetxattr(fd, n, buf) })
		}
		checkGetters(t, get)
		fd = uring.Fd(unusedFD)
		wantErrno(t, get("user.one", nil), syscall.EBADF)
	})
	t.Run("fixed file", func(t *testing.T) {
		ringtest.NeedKernel(t, "xattr operations on fixed files", "6.13")
		overXattrs(t, uring.OpFgetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
			checkGetters(t, func(name string, buf []byte) uring.CQE {
				n := mustPath(name)
				return complete(t, r, func(e *uring.SQE) { e.Fgetxattr(uring.FixedFd(0), n, buf) })
			})
		})
	})
}

func kernelGetxattr(t *testing.T) {
	overXattrs(t, uring.OpGetxattr, func(t *testing.T, r *uring.Ring, f *os.File) {
		path := f.Name()
		get := func(name string, buf []byte) uring.CQE {
			p, n := mustPath(path), mustPath(name)
			return complete(t, r, func(e *uring.SQE) { e.Getxattr(p, n, buf) })
		}
		checkGetters(t, get)
		path += ".missing"
		wantErrno(t, get("user.one", nil), syscall.ENOENT)
	})
}
