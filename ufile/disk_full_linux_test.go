// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestDiskFullInTheMiddleOfABatch uses a disk with space for half of the data.
// Promise: ufile/batch-returns-result
func TestDiskFullInTheMiddleOfABatch(t *testing.T) {
	if ringtest.InChild(t, ownMounts()) {
		src := fileOf(t, random(80*(24<<10)))
		fillUp(t, smallDisk(t, "1m"), src, 24<<10, syscall.ENOSPC)
	}
}

// TestFileTooLargeInTheMiddleOfABatch uses a limit on the file's size instead of a full
// disk.
// Promise: ufile/batch-returns-result
func TestFileTooLargeInTheMiddleOfABatch(t *testing.T) {
	if !ringtest.InChild(t, nil) {
		return
	}
	src := fileOf(t, random(80*(24<<10)))
	signal.Ignore(syscall.SIGXFSZ)
	const limit = 1<<20 + 4096
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	fillUp(t, t.TempDir(), src, 24<<10, syscall.EFBIG)
}

// fillUp writes more of src than fits, in every way.
func fillUp(t *testing.T, dir, src string, piece int, want syscall.Errno) {
	content, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range modes {
		for _, direct := range []int{0, sys.ODirect} {
			name := fmt.Sprintf("%v,direct=%v", mode, direct != 0)
			path := filepath.Join(dir, name)
			create := func() *ufile.File {
				s := newSystem(t, ufile.Options{Mode: mode})
				f, err := s.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_TRUNC|direct, 0o600)
				if err != nil {
					t.Logf("%s: %v", name, err) // a tmpfs without O_DIRECT, before Linux 6.6
					return nil
				}
				return f
			}
			f := create()
			if f == nil {
				continue
			}
			fillByBatch(t, name, f, content, piece, want)
			fillByCopy(t, name, create(), src, content, want)
			f = create()
			theirs, err := os.OpenFile(path, os.O_RDWR|direct, 0)
			if err != nil {
				t.Fatal(err)
			}
			p := ufile.AlignedBuffer(len(content))
			n, wantErr := theirs.WriteAt(p, 0)
			if m, err := f.WriteAt(p, 0); m != n || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Errorf("%s: WriteAt = %d, %v, want %d, %v", name, m, err, n, wantErr)
			}
			theirs.Close()
			f.Close()
			os.Remove(path)
		}
	}
}

// fillByBatch writes pieces until no space is left and beyond, and checks each result.
func fillByBatch(t *testing.T, name string, f *ufile.File, content []byte, piece int, want syscall.Errno) {
	defer f.Close()
	b, err := ufile.NewBatch(ufile.BatchOptions{Depth: 16, Buffers: 4, BufferSize: piece})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var ranges []ufile.Range
	for off := 0; off < len(content); off += piece {
		p := ufile.AlignedBuffer(piece)
		if i := off / piece; i < 4 {
			p = b.Buffer(i)
		}
		copy(p, content[off:])
		ranges = append(ranges, ufile.Range{File: f, Off: int64(off), Buf: p})
	}
	if err := b.Write(ranges); !errors.Is(err, want) {
		t.Errorf("%s: Write: %v", name, err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	whole, failed := 0, 0
	for i, r := range ranges {
		switch {
		case r.Err == nil && r.N == piece:
			whole++
		case errors.Is(r.Err, want) && r.N < piece:
			failed++
			if e, ok := r.Err.(*os.PathError); !ok || e.Op != "write" || e.Path != f.Name() {
				t.Errorf("%s: range %d: %#v", name, i, r.Err)
			}
		default:
			t.Errorf("%s: range %d: %d bytes, %v", name, i, r.N, r.Err)
		}
		if r.N > 0 && (int(r.Off)+r.N > len(got) || !bytes.Equal(got[r.Off:][:r.N], r.Buf[:r.N])) {
			t.Errorf("%s: range %d is not in the file", name, i)
		}
		if more := got[min(int(r.Off)+r.N, len(got)):]; r.N < piece && len(more) >= 512 && bytes.Equal(more[:512], r.Buf[r.N:][:512]) {
			t.Errorf("%s: range %d was written beyond the reported %d bytes", name, i, r.N)
		}
	}
	if whole < 20 || failed < 20 {
		t.Errorf("%s: %d ranges were written, %d not", name, whole, failed)
	}
	// The same batch succeeds once there is space.
	if err := f.Truncate(0); err != nil {
		t.Fatal(err)
	}
	if err := b.Write(ranges[:8]); err != nil {
		t.Errorf("%s: with room: %v", name, err)
	}
}

// fillByCopy copies until no space is left, and checks that all reported bytes are in the
// file.
func fillByCopy(t *testing.T, name string, f *ufile.File, path string, content []byte, want syscall.Errno) {
	defer f.Close()
	src, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	n, err := ufile.CopyRange(t.Context(), f, 0, src, 0, int64(len(content)), ufile.CopyOptions{BlockSize: 16 << 10})
	if !errors.Is(err, want) || n < int64(len(content)/4) || n == int64(len(content)) {
		t.Errorf("%s: CopyRange = %d, %v", name, n, err)
	}
	got, err := os.ReadFile(f.Name())
	if err != nil || int64(len(got)) < n || !bytes.Equal(got[:n], content[:n]) {
		t.Errorf("%s: the copy has %d bytes, %v, of which %d were reported, or wrong data", name, len(got), err, n)
	}
}
