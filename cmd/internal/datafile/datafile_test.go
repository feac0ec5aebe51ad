// SPDX-License-Identifier: MIT

package datafile

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestPatternFindsEveryKindOfDamage(t *testing.T) {
	const seed, off = 99, 7 * UnitSize
	p := make([]byte, 4*UnitSize)
	Fill(p, seed, off)
	if err := errors.Join(Check(p, seed, off), CheckStamps(p, seed, off)); err != nil {
		t.Fatalf("valid content was refused: %v", err)
	}
	var mismatch *MismatchError
	if err := Check(p, seed, off+UnitSize); !errors.As(err, &mismatch) || mismatch.Offset != off+UnitSize {
		t.Errorf("content of another offset: %v", err)
	}
	if err := CheckStamps(p, seed, 0); !errors.As(err, &mismatch) {
		t.Errorf("stamp of another offset: %v", err)
	}
	if err := CheckStamps(p, seed+1, off); !errors.As(err, &mismatch) {
		t.Errorf("stamp of another file: %v", err)
	}
	for _, at := range []int{stampSeed, stampOffset, stampSum, payload, UnitSize - 1, UnitSize + 2000, len(p) - 1} {
		p[at] ^= 1
		if err := Check(p, seed, off); !errors.As(err, &mismatch) {
			t.Errorf("a flipped bit in byte %d: %v", at, err)
		}
		p[at] ^= 1
	}
}

func TestCheckStampsAllocatesNothing(t *testing.T) {
	p := make([]byte, 2*UnitSize)
	Fill(p, 1, 0)
	if n := ringtest.Allocations(100, func() { _ = CheckStamps(p, 1, 0); _ = Check(p, 1, 0) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestCreateAndRemove(t *testing.T) {
	dir := t.TempDir()
	const size = 3*chunkSize + UnitSize
	var written int64
	d, err := Create(t.Context(), dir, size, 5, func(n int64) { written += n })
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(d.Path())
	if err != nil || len(content) != size || written != size || d.Size() != size {
		t.Fatalf("%d bytes in the file, %d reported, %v", len(content), written, err)
	}
	if err := Check(content, d.Seed(), 0); err != nil {
		t.Error(err)
	}
	if got, err := SizeOf(d.Path()); got != size || err != nil {
		t.Errorf("SizeOf = %d, %v", got, err)
	}
	if err := errors.Join(ReadIn(t.Context(), d.Path(), size), Evict(d.Path())); err != nil {
		t.Error(err)
	}
	if err := ReadIn(t.Context(), d.Path(), size+1); err == nil {
		t.Error("more bytes were read than the file has")
	}
	if err := d.Remove(); err != nil {
		t.Error(err)
	}
	wantEmpty(t, dir)
}

func TestCreateLeavesNothingWhenStopped(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	_, err := Create(ctx, dir, 16*chunkSize, 5, func(int64) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	wantEmpty(t, dir)
}

func TestCreateRefusesOddSizes(t *testing.T) {
	for _, size := range []int64{0, -UnitSize, UnitSize + 1} {
		if _, err := Create(t.Context(), t.TempDir(), size, 1, nil); err == nil {
			t.Errorf("size %d accepted", size)
		}
	}
	if _, err := Create(t.Context(), filepath.Join(t.TempDir(), "missing"), UnitSize, 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}

func TestSizeOfRefusesOtherThings(t *testing.T) {
	if _, err := SizeOf(t.TempDir()); err == nil {
		t.Error("SizeOf accepted a directory")
	}
}

func wantEmpty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		t.Errorf("left behind: %s", e.Name())
	}
}

func TestMakerFitsTheFileIntoWhatIsFree(t *testing.T) {
	const gib = 1 << 30
	for _, tc := range []struct {
		wish, free, want int64
	}{
		{gib, 10 * gib, gib},
		{gib, gib, gib / 2},
		{gib, gib/4 + reserve, gib / 4},
		{gib, MinSize + reserve, MinSize},
		{gib, MinSize + reserve - 1, 0},
		{8 << 20, reserve + 8<<20, 8 << 20},
		{8 << 20, reserve, 0},
	} {
		var got int64
		m := Maker{
			Free: func(string) (int64, error) { return tc.free, nil },
			Create: func(_ context.Context, _ string, size int64, _ uint64, _ func(int64)) (*File, error) {
				got = size
				return &File{size: size}, nil
			},
		}
		_, err := m.Make(t.Context(), "dir", tc.wish, 1, nil)
		var full *SpaceError
		if tc.want == 0 {
			if !errors.As(err, &full) || full.Free != tc.free {
				t.Errorf("%d of %d free: %v", tc.wish, tc.free, err)
			}
		} else if err != nil || got != tc.want {
			t.Errorf("%d of %d free: made %d, %v; want %d", tc.wish, tc.free, got, err, tc.want)
		}
	}
}

func TestMakerRetriesWhenTheDeviceFillsUp(t *testing.T) {
	for _, errno := range []error{syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG} {
		if !isNoSpace(errno) {
			t.Skip("disk full: not recognised on this system")
		}
		var sizes []int64
		m := Maker{
			Free: func(string) (int64, error) { return 1 << 40, nil },
			Create: func(_ context.Context, _ string, size int64, _ uint64, _ func(int64)) (*File, error) {
				sizes = append(sizes, size)
				if size > 2*MinSize {
					return nil, &os.PathError{Op: "write", Path: "x", Err: errno}
				}
				return &File{size: size}, nil
			},
		}
		d, err := m.Make(t.Context(), "dir", 8*MinSize, 1, nil)
		if err != nil || d.Size() != 2*MinSize || len(sizes) != 3 {
			t.Errorf("%v: tried %v, got %v", errno, sizes, err)
		}
		m.Create = func(context.Context, string, int64, uint64, func(int64)) (*File, error) { return nil, errno }
		if _, err := m.Make(t.Context(), "dir", 8*MinSize, 1, nil); !errors.Is(err, errno) {
			t.Errorf("%v at every size: %v", errno, err)
		}
	}
}

func TestMakerAsksTheRealFileSystem(t *testing.T) {
	dir := t.TempDir()
	if _, err := freeSpace(dir); errors.Is(err, errors.ErrUnsupported) {
		t.Skip("statfs: not on this system")
	}
	const wish = 1 << 60
	m := Maker{Create: func(_ context.Context, _ string, size int64, _ uint64, _ func(int64)) (*File, error) {
		return &File{size: size}, nil
	}}
	d, err := m.Make(t.Context(), dir, wish, 1, nil)
	var full *SpaceError
	if err != nil && !errors.As(err, &full) {
		t.Error(err)
	}
	if err == nil && d.Size() >= wish {
		t.Errorf("the file system claims to hold %d bytes", d.Size())
	}
	if _, err := m.Make(t.Context(), dir+"/missing", UnitSize, 1, nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing directory: %v", err)
	}
}
