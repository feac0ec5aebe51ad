// SPDX-License-Identifier: MIT

package ufile_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestStatx compares with what stat(2) says.
func TestStatx(t *testing.T) {
	start := time.Now().Add(-time.Minute)
	path := fileOf(t, random(5000))
	if err := os.Chmod(path, 0o4750|fs.ModeSetuid); err != nil {
		t.Fatal(err)
	}
	s := newSystem(t, ufile.Options{})
	for _, name := range []string{path, filepath.Dir(path), "/", os.DevNull} {
		f := open(t, s, name, os.O_RDONLY)
		st, err := f.Statx(ufile.StatxAll)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		agrees(t, st, info)
	}
	f := open(t, s, path, os.O_RDONLY)
	st, err := f.Statx(ufile.StatxAll)
	if st.Mask&ufile.StatxBtime != 0 && (st.Btime.Before(start) || st.Btime.After(time.Now().Add(time.Minute))) || err != nil {
		t.Errorf("created at %v, %v", st.Btime, err)
	}
}

func agrees(t *testing.T, st ufile.StatxInfo, info fs.FileInfo) {
	t.Helper()
	b := info.Sys().(*syscall.Stat_t)
	if st.Mask&ufile.StatxBasic != ufile.StatxBasic {
		t.Errorf("mask %#x", st.Mask)
	}
	dev, rdev := uint64(b.Dev), uint64(b.Rdev)
	if st.Mode != info.Mode() || st.Size != info.Size() || !st.Mtime.Equal(info.ModTime()) ||
		st.Ino != b.Ino || uint64(st.Nlink) != uint64(b.Nlink) || st.UID != b.Uid || st.GID != b.Gid ||
		st.Blocks != b.Blocks || st.BlockSize != int64(b.Blksize) ||
		!st.Ctime.Equal(time.Unix(b.Ctim.Unix())) ||
		st.DevMajor != sys.Major(dev) || st.DevMinor != sys.Minor(dev) || st.RdevMajor != sys.Major(rdev) || st.RdevMinor != sys.Minor(rdev) {
		t.Errorf("%s: %+v, but stat says %v %+v", info.Name(), st, info.Mode(), *b)
	}
}

// TestStatxOfNewerKernels asks for what not every kernel knows.
func TestStatxOfNewerKernels(t *testing.T) {
	path := fileOf(t, random(4096))
	s := newSystem(t, ufile.Options{})
	f := open(t, s, path, os.O_RDONLY)
	for _, field := range []struct {
		name, since string
		mask        ufile.StatxMask
		check       func(st ufile.StatxInfo) bool
	}{
		{"MountID", "5.8", ufile.StatxMountID, func(st ufile.StatxInfo) bool { return st.MountID > 0 }},
		{"MountIDUnique", "6.8", ufile.StatxMountIDUnique, func(st ufile.StatxInfo) bool { return st.MountID > 1<<31 }},
	} {
		t.Run(field.name, func(t *testing.T) {
			ringtest.NeedKernel(t, "statx "+field.name, field.since)
			st, err := f.Statx(field.mask)
			if err != nil || st.Mask&field.mask == 0 || !field.check(st) {
				t.Errorf("%+v, %v", st, err)
			}
		})
	}
	t.Run("DIOAlign", func(t *testing.T) {
		ringtest.NeedKernel(t, "statx DIOALIGN", "6.1")
		needDirect(t, path)
		st, err := f.Statx(ufile.StatxDIOAlign)
		if err != nil {
			t.Fatal(err)
		}
		if st.Mask&ufile.StatxDIOAlign == 0 {
			t.Skipf("needs a file system that tells the alignment of O_DIRECT")
		}
		d := open(t, s, path, os.O_RDONLY|sys.ODirect)
		n := int(st.DIOOffsetAlign)
		if n == 0 || n > 4096 || st.DIOMemAlign == 0 {
			t.Fatalf("alignment %d of offsets, %d of memory", n, st.DIOMemAlign)
		}
		readAt(t, d, ufile.AlignedBuffer(n), int64(n)%4096)
	})
}

func TestStatxErrors(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	f := open(t, s, fileOf(t, nil), os.O_RDONLY)
	f.Close()
	_, err := f.Statx(ufile.StatxAll)
	if e, ok := err.(*fs.PathError); !ok || e.Op != "statx" || e.Path != f.Name() || !errors.Is(err, os.ErrClosed) {
		t.Errorf("of a closed file: %v", err)
	}
	if _, err := (*ufile.File)(nil).Statx(0); err != os.ErrInvalid {
		t.Errorf("of no file: %v", err)
	}
}
