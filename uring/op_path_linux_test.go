// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	kernelOp(uring.OpStatx, kernelStatx)
	kernelOp(uring.OpRenameAt, kernelRenameAt)
	kernelOp(uring.OpUnlinkAt, kernelUnlinkAt)
	kernelOp(uring.OpMkdirAt, kernelMkdirAt)
	kernelOp(uring.OpSymlinkAt, kernelSymlinkAt)
	kernelOp(uring.OpLinkAt, kernelLinkAt)
}

func kernelStatx(t *testing.T) {
	ringtest.NeedOp(t, uring.OpStatx, "5.6")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		f := tempFile(t, "0123456789")
		st := new(uring.Statx)
		statx := func(dir int, path string, flags int, mask uint32) uring.CQE {
			p := mustPath(path)
			return complete(t, r, func(e *uring.SQE) { e.Statx(dir, p, flags, mask, st) })
		}
		if err := f.Sync(); err != nil { // its blocks are allocated then
			t.Fatal(err)
		}
		want := new(unix.Statx_t)
		if err := unix.Statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS, want); err != nil {
			t.Fatal(err)
		}
		check := func(c uring.CQE) {
			t.Helper()
			wantRes(t, c, 0)
			if st.Size != 10 || st.Ino != want.Ino || st.Mode != want.Mode || st.Nlink != 1 || st.UID != want.Uid ||
				st.GID != want.Gid || st.DevMajor != want.Dev_major || st.DevMinor != want.Dev_minor ||
				st.Blksize != want.Blksize || st.Blocks != want.Blocks || st.Mask&unix.STATX_SIZE == 0 {
				t.Errorf("got %+v, want %+v", *st, *want)
			}
			if got := st.Mtime; got.Sec != want.Mtime.Sec || got.Nsec != want.Mtime.Nsec {
				t.Errorf("modified %v, want %v", got, want.Mtime)
			}
			*st = uring.Statx{}
		}
		check(statx(uring.AtCWD, f.Name(), 0, unix.STATX_BASIC_STATS))
		check(statx(int(f.Fd()), "", unix.AT_EMPTY_PATH, unix.STATX_BASIC_STATS))
		info, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		statx(uring.AtCWD, f.Name(), 0, unix.STATX_MTIME)
		if got := st.Mtime.Time(); !got.Equal(info.ModTime()) {
			t.Errorf("modified %v, want %v", got, info.ModTime())
		}
		wantErrno(t, statx(uring.AtCWD, f.Name()+".missing", 0, 0), syscall.ENOENT)
		wantErrno(t, statx(unusedFD, "x", 0, 0), syscall.EBADF)
		wantErrno(t, statx(uring.AtCWD, f.Name(), 1<<30, 0), syscall.EINVAL)
	})
}

func kernelRenameAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpRenameAt, "5.11")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		from, to := openDir(t, "content"), openDir(t, "other")
		rename := func(oldDir int, oldPath string, newDir int, newPath string, flags uint32) uring.CQE {
			o, n := mustPath(oldPath), mustPath(newPath)
			return complete(t, r, func(e *uring.SQE) { e.RenameAt(oldDir, o, newDir, n, flags) })
		}
		src, dst := filepath.Join(from.Name(), "file"), filepath.Join(to.Name(), "file")
		wantErrno(t, rename(uring.AtCWD, src, uring.AtCWD, dst, unix.RENAME_NOREPLACE), syscall.EEXIST)
		wantRes(t, rename(int(from.Fd()), "file", int(to.Fd()), "new", 0), 0)
		wantContent(t, filepath.Join(to.Name(), "new"), "content")
		wantErrno(t, rename(int(from.Fd()), "file", int(to.Fd()), "new", 0), syscall.ENOENT)
		wantRes(t, rename(uring.AtCWD, dst, uring.AtCWD, src, 0), 0)
		wantContent(t, src, "other")
	})
}

func kernelUnlinkAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpUnlinkAt, "5.11")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		dir := openDir(t, "content")
		sub := filepath.Join(dir.Name(), "sub")
		if err := os.Mkdir(sub, 0o700); err != nil {
			t.Fatal(err)
		}
		unlink := func(dir int, path string, flags int) uring.CQE {
			p := mustPath(path)
			return complete(t, r, func(e *uring.SQE) { e.UnlinkAt(dir, p, flags) })
		}
		wantErrno(t, unlink(int(dir.Fd()), "sub", 0), syscall.EISDIR)
		wantRes(t, unlink(int(dir.Fd()), "file", 0), 0)
		wantRes(t, unlink(uring.AtCWD, sub, unix.AT_REMOVEDIR), 0)
		if left, err := os.ReadDir(dir.Name()); err != nil || len(left) != 0 {
			t.Errorf("left: %v, %v", left, err)
		}
		wantErrno(t, unlink(int(dir.Fd()), "file", 0), syscall.ENOENT)
	})
}

func kernelMkdirAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpMkdirAt, "5.15")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		dir := openDir(t, "content")
		mkdir := func(dir int, path string, mode uint32) uring.CQE {
			p := mustPath(path)
			return complete(t, r, func(e *uring.SQE) { e.MkdirAt(dir, p, mode) })
		}
		wantRes(t, mkdir(int(dir.Fd()), "sub", 0o700), 0)
		wantRes(t, mkdir(uring.AtCWD, filepath.Join(dir.Name(), "sub", "subsub"), 0o500), 0)
		for name, mode := range map[string]fs.FileMode{"sub": 0o700, "sub/subsub": 0o500} {
			if st, err := os.Stat(filepath.Join(dir.Name(), name)); err != nil || st.Mode() != fs.ModeDir|mode {
				t.Errorf("%s: %v, %v", name, st, err)
			}
		}
		wantErrno(t, mkdir(int(dir.Fd()), "sub", 0o700), syscall.EEXIST)
		wantErrno(t, mkdir(int(dir.Fd()), "missing/sub", 0o700), syscall.ENOENT)
	})
}

func kernelSymlinkAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpSymlinkAt, "5.15")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		dir := openDir(t, "content")
		symlink := func(target string, dir int, link string) uring.CQE {
			p, l := mustPath(target), mustPath(link)
			return complete(t, r, func(e *uring.SQE) { e.SymlinkAt(p, dir, l) })
		}
		wantRes(t, symlink("file", int(dir.Fd()), "link"), 0)
		if got, err := os.Readlink(filepath.Join(dir.Name(), "link")); got != "file" || err != nil {
			t.Errorf("link to %q, %v", got, err)
		}
		wantContent(t, filepath.Join(dir.Name(), "link"), "content")
		wantErrno(t, symlink("file", int(dir.Fd()), "link"), syscall.EEXIST)
		wantErrno(t, symlink("file", unusedFD, "link"), syscall.EBADF)
	})
}

func kernelLinkAt(t *testing.T) {
	ringtest.NeedOp(t, uring.OpLinkAt, "5.15")
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		from, to := openDir(t, "content"), openDir(t, "other")
		link := func(oldDir int, oldPath string, newDir int, newPath string, flags int) uring.CQE {
			o, n := mustPath(oldPath), mustPath(newPath)
			return complete(t, r, func(e *uring.SQE) { e.LinkAt(oldDir, o, newDir, n, flags) })
		}
		wantRes(t, link(int(from.Fd()), "file", int(to.Fd()), "hard", 0), 0)
		src, hard := filepath.Join(from.Name(), "file"), filepath.Join(to.Name(), "hard")
		wantSameFile(t, src, hard, true)

		soft := filepath.Join(from.Name(), "soft")
		if err := os.Symlink("file", soft); err != nil {
			t.Fatal(err)
		}
		followed, kept := filepath.Join(to.Name(), "followed"), filepath.Join(to.Name(), "kept")
		wantRes(t, link(uring.AtCWD, soft, uring.AtCWD, followed, unix.AT_SYMLINK_FOLLOW), 0)
		wantRes(t, link(uring.AtCWD, soft, uring.AtCWD, kept, 0), 0)
		wantSameFile(t, src, followed, true)
		wantSameFile(t, src, kept, false)

		wantErrno(t, link(int(from.Fd()), "file", int(to.Fd()), "hard", 0), syscall.EEXIST)
		wantErrno(t, link(int(from.Fd()), "missing", int(to.Fd()), "x", 0), syscall.ENOENT)
	})
}

// wantSameFile compares the files themselves, without following links.
func wantSameFile(t *testing.T, a, b string, same bool) {
	t.Helper()
	sa, errA := os.Lstat(a)
	sb, errB := os.Lstat(b)
	if err := errors.Join(errA, errB); err != nil {
		t.Fatal(err)
	}
	if os.SameFile(sa, sb) != same {
		t.Errorf("%s and %s are the same file: %v, want %v", a, b, !same, same)
	}
}
