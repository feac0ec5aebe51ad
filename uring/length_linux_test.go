// SPDX-License-Identifier: MIT

package uring_test

import (
	"math"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestZeroLengths transfers nothing: the result is 0 bytes. The operation neither waits for
// data nor takes a buffer from a group.
func TestZeroLengths(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		a, b := unixPair(t, unix.SOCK_STREAM)
		for what, build := range map[string]func(e *uring.SQE){
			"read":         func(e *uring.SQE) { e.Read(fdOf(f), nil, 0) },
			"read, empty":  func(e *uring.SQE) { e.Read(fdOf(f), []byte{}, 0) },
			"readv, none":  func(e *uring.SQE) { e.Readv(fdOf(f), nil, 0, 0) },
			"readv, empty": func(e *uring.SQE) { e.Readv(fdOf(f), make([]uring.Iovec, 3), 0, 0) },
			"write":        func(e *uring.SQE) { e.Write(fdOf(f), nil, 20) },
			"writev":       func(e *uring.SQE) { e.Writev(fdOf(f), make([]uring.Iovec, 3), 20, 0) },
			"send":         func(e *uring.SQE) { e.Send(on(a), nil, 0) },
		} {
			if c := complete(t, r, build); c.Res != 0 {
				t.Errorf("%s: %d, %v", what, c.Res, c.Err())
			}
		}
		c := complete(t, r, func(e *uring.SQE) { e.Fallocate(fdOf(f), 0, 0, 0) })
		wantErrno(t, c, syscall.EINVAL)
		wantContent(t, f.Name(), "0123456789")
		sockWrite(t, b, "x")
		wantRead(t, a, "x")
	})
}

// TestLengthsBeyondTheKernelsLimits transfers into more memory than one call may use (at
// most 2 GiB less a page). Memory beyond the data is never touched.
func TestLengthsBeyondTheKernelsLimits(t *testing.T) {
	if math.MaxInt == math.MaxInt32 {
		t.Skip("needs an address space of more than 32 bits")
	}
	huge := int64(5 << 30) // also more than an entry's 32 bits
	mem, err := unix.Mmap(-1, 0, int(huge), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	if err != nil {
		t.Skipf("needs %d bytes of address space: %v", huge, err)
	}
	t.Cleanup(func() { ctlOK(t, "unmap", unix.Munmap(mem)) })
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		for _, n := range []int64{math.MaxInt32 - 4095, math.MaxInt32, math.MaxInt32 + 1, math.MaxUint32, huge} {
			clear(mem[:16])
			c := complete(t, r, func(e *uring.SQE) { e.Read(fdOf(f), mem[:n], 2) })
			wantRes(t, c, 8)
			if got := string(mem[:10]); got != "23456789\x00\x00" {
				t.Errorf("read %q", got)
			}
		}
		iov := []uring.Iovec{uring.NewIovec(mem[:math.MaxInt32]), uring.NewIovec(mem[math.MaxInt32:])}
		wantRes(t, complete(t, r, func(e *uring.SQE) { e.Readv(fdOf(f), iov, 4, 0) }), 6)
	})
}

// TestManyParts reads into as many parts as one call may have, and into one more.
func TestManyParts(t *testing.T) {
	const most = 1024 // IOV_MAX
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		content := strings.Repeat("0123456789abcdef", most/16)
		f := tempFile(t, content)
		buf := make([]byte, most+1)
		iov := make([]uring.Iovec, most+1)
		for i := range iov {
			iov[i] = uring.NewIovec(buf[most-i : most-i+1]) // backwards
		}
		for _, flags := range []uring.SQEFlags{0, uring.SQEAsync} {
			clear(buf)
			c := complete(t, r, func(e *uring.SQE) { e.Readv(fdOf(f), iov[:most], 0, 0).SetFlags(flags) })
			wantRes(t, c, most)
			for i := range most {
				if buf[most-i] != content[i] {
					t.Fatalf("part %d is %q, want %q", i, buf[most-i], content[i])
				}
			}
			c = complete(t, r, func(e *uring.SQE) { e.Readv(fdOf(f), iov, 0, 0).SetFlags(flags) })
			wantErrno(t, c, syscall.EINVAL)
		}
	})
}

// TestOffsetsBeyond32Bits writes and reads at offsets that would refer to the start of the
// file if they were cut to 32 bits, through descriptors that the ring opened.
func TestOffsetsBeyond32Bits(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "start")
		path, err := uring.NewPath(f.Name())
		ctlOK(t, "path", err)
		c := complete(t, r, func(e *uring.SQE) { e.OpenAt(uring.AtCWD, path, unix.O_RDWR|unix.O_CLOEXEC, 0) })
		if c.Res < 0 {
			t.Fatal(c.Err())
		}
		defer ctlClose(t, int(c.Res))
		fd := uring.Fd(int(c.Res))
		data := []byte("far")
		for _, off := range []int64{1<<31 - 1, 1 << 32, 1<<33 + 1} {
			c := complete(t, r, func(e *uring.SQE) { e.Write(fd, data, off) })
			if c.Errno() == syscall.EFBIG {
				t.Skipf("needs a file system with files of %d bytes", off)
			}
			wantRes(t, c, len(data))
			wantReadAt(t, r, fd, 8, off, "far")
		}
		wantReadAt(t, r, fd, 5, 0, "start")
		c = complete(t, r, func(e *uring.SQE) { e.Read(fd, data, math.MinInt64) })
		wantErrno(t, c, syscall.EINVAL)
	})
}

// TestEmptyAndOverlongNames passes empty names, and one that is too long, to operations that
// take names.
func TestEmptyAndOverlongNames(t *testing.T) {
	t.Chdir(t.TempDir()) // some operations have other results where the file cannot be written
	if _, err := uring.NewPath("a\x00b"); err == nil {
		t.Error("NewPath accepts a name with a NUL byte")
	}
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		for name, want := range map[string]syscall.Errno{
			"":                                  syscall.ENOENT,
			strings.Repeat("n", 256):            syscall.ENAMETOOLONG,
			strings.Repeat("directory/", 1<<10): syscall.ENAMETOOLONG,
			"no such name/at all":               syscall.ENOENT,
		} {
			path, err := uring.NewPath(name)
			ctlOK(t, "path", err)
			var stat uring.Statx
			for what, build := range map[string]func(e *uring.SQE){
				"open":   func(e *uring.SQE) { e.OpenAt(uring.AtCWD, path, unix.O_RDONLY, 0) },
				"statx":  func(e *uring.SQE) { e.Statx(uring.AtCWD, path, 0, unix.STATX_SIZE, &stat) },
				"unlink": func(e *uring.SQE) { e.UnlinkAt(uring.AtCWD, path, 0) },
				"rename": func(e *uring.SQE) { e.RenameAt(uring.AtCWD, path, uring.AtCWD, path, 0) },
			} {
				if what == "unlink" || what == "rename" {
					ringtest.NeedKernel(t, what, "5.11")
				}
				if c := complete(t, r, build); c.Errno() != want {
					t.Errorf("%s %.10q: %d, %v, want %v", what, name, c.Res, c.Err(), want)
				}
			}
		}
	})
}
