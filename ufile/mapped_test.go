// SPDX-License-Identifier: MIT

//go:build unix

package ufile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// mapFile opens and maps a file; the end of the test closes both.
func mapFile(t testing.TB, s *ufile.System, path string, flag int) (*ufile.File, *ufile.Mapped) {
	t.Helper()
	f := open(t, s, path, flag)
	m, err := f.Map()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() }) // some tests have closed the map
	return f, m
}

// TestMapped compares slices of a mapped file with its content: single bytes, across pages and
// chunks, up to the end, by several goroutines, hot and cold, and after a write to the file.
//
// Promise: ufile/mapped-memory-holds
func TestMapped(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		content := random(1<<20 + 1234)
		path := fileOf(t, content)
		forgetCached(t, path)
		f, m := mapFile(t, s, path, os.O_RDWR)
		if m.Len() != int64(len(content)) {
			t.Fatalf("Len = %d, want %d", m.Len(), len(content))
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(1, uint64(g)))
				for range ringtest.Rounds(400, 100) {
					off := rng.IntN(len(content))
					n := min([]int{0, 1, 100, 4096, 10_000, 300_000}[rng.IntN(6)], len(content)-off)
					if p, err := m.Slice(int64(off), n); err != nil || !bytes.Equal(p, content[off:off+n]) {
						t.Errorf("Slice(%d, %d) = %d bytes, %v", off, n, len(p), err)
						return
					}
				}
			})
		}
		wg.Wait()
		writeAt(t, f, []byte("changed"), 5000)
		if p, err := m.Slice(5000, 7); err != nil || string(p) != "changed" {
			t.Fatalf("after a write Slice = %q, %v", p, err)
		}
		if p, err := m.Slice(0, len(content)); err != nil || len(p) != len(content) || cap(p) != len(p) {
			t.Fatalf("Slice of all = %d bytes of %d, %v", len(p), cap(p), err)
		}
	})
}

func TestMappedErrors(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		f, m := mapFile(t, s, fileOf(t, random(5000)), os.O_RDONLY)
		for _, c := range []struct {
			off  int64
			n    int
			want error
		}{{4999, 2, io.EOF}, {5000, 1, io.EOF}, {1 << 62, 1, io.EOF}, {5000, 0, nil}, {0, 5000, nil}} {
			if _, err := m.Slice(c.off, c.n); !errors.Is(err, c.want) || c.want != nil && err == nil {
				t.Errorf("Slice(%d, %d) = %v, want %v", c.off, c.n, err, c.want)
			}
		}
		for _, c := range [][2]int{{-1, 1}, {0, -1}} {
			if _, err := m.Slice(int64(c[0]), c[1]); err == nil {
				t.Errorf("Slice(%d, %d) succeeds", c[0], c[1])
			}
		}
		if err := m.Prefetch(ufile.Extent{Off: 0, Len: 5000}, ufile.Extent{}); err != nil {
			t.Error(err)
		}
		if err := m.Prefetch(ufile.Extent{Off: 0, Len: 5001}); !errors.Is(err, io.EOF) {
			t.Errorf("Prefetch beyond the end = %v", err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
		_, err := m.Slice(0, 1)
		for _, err := range []error{err, m.Prefetch(ufile.Extent{Len: 1}), m.Close()} {
			if !errors.Is(err, os.ErrClosed) {
				t.Errorf("after Close: %v, want os.ErrClosed", err)
			}
		}
		f.Close()
		if _, err := f.Map(); !errors.Is(err, os.ErrClosed) {
			t.Errorf("Map of a closed file = %v", err)
		}
	})
	var none *ufile.File
	if _, err := none.Map(); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("Map of a nil File = %v", err)
	}
	dir, err := ufile.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if _, err := dir.Map(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("Map of a directory = %v", err)
	}
	_, empty := mapFile(t, newSystem(t, ufile.Options{}), fileOf(t, nil), os.O_RDONLY)
	if p, err := empty.Slice(0, 0); err != nil || len(p) != 0 {
		t.Errorf("Slice of an empty file = %v, %v", p, err)
	}
	if _, err := empty.Slice(0, 1); !errors.Is(err, io.EOF) {
		t.Errorf("Slice of an empty file = %v, want io.EOF", err)
	}
}

// TestMappedClosedFile closes the File first: pages that are not known to be resident give an error.
func TestMappedClosedFile(t *testing.T) {
	f, m := mapFile(t, newSystem(t, ufile.Options{}), fileOf(t, random(5000)), os.O_RDONLY)
	f.Close()
	if _, err := m.Slice(0, 1); !errors.Is(err, os.ErrClosed) {
		t.Errorf("Slice after Close of the File = %v, want os.ErrClosed", err)
	}
}

// TestMappedTruncated truncates a mapped file of which all, nothing or one page was used. Slice
// returns an error for what is gone, and Guard one for memory that Slice has returned before.
//
// Promise: ufile/truncated-map-error
func TestMappedTruncated(t *testing.T) {
	const size, cut = 1 << 20, 300_000
	overModes(t, func(t *testing.T, s *ufile.System) {
		for _, used := range []int{0, 1, size} {
			path := fileOf(t, random(size))
			_, m := mapFile(t, s, path, os.O_RDONLY)
			if _, err := m.Slice(int64(size-used), used); err != nil {
				t.Fatal(err)
			}
			before, err := m.Slice(size-100, 100)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Truncate(path, cut); err != nil {
				t.Fatal(err)
			}
			guarded := m.Guard(func() error { _ = bytes.Count(before, []byte{1}); return nil })
			if !errors.Is(guarded, io.ErrUnexpectedEOF) {
				t.Errorf("Guard after a truncation = %v, want io.ErrUnexpectedEOF", guarded)
			}
			for _, r := range [][2]int{{size - 1, 1}, {cut + 8192, 4096}, {0, size}} {
				if _, err := m.Slice(int64(r[0]), r[1]); !errors.Is(err, io.ErrUnexpectedEOF) {
					t.Errorf("used %d: Slice(%d, %d) after a truncation = %v, want io.ErrUnexpectedEOF", used, r[0], r[1], err)
				}
			}
			if p, err := m.Slice(0, cut); err != nil || len(p) != cut {
				t.Errorf("used %d: Slice of what is left = %d bytes, %v", used, len(p), err)
			}
		}
	})
}

// TestMappedTruncatedUnderSlices truncates a file while goroutines use its pages, so that no order
// of the two ends the program.
func TestMappedTruncatedUnderSlices(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		for range ringtest.Rounds(10, 3) {
			path := fileOf(t, random(256<<10))
			forgetCached(t, path)
			_, m := mapFile(t, s, path, os.O_RDONLY)
			var wg sync.WaitGroup
			for g := range 4 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(2, uint64(g)))
					for { // until the truncation is seen
						err := m.Guard(func() error {
							p, err := m.Slice(rng.Int64N(60)<<12, 8192)
							_ = bytes.Count(p, []byte{1})
							return err
						})
						if err == nil {
							continue
						}
						if !errors.Is(err, io.ErrUnexpectedEOF) {
							t.Errorf("Slice = %v, want io.ErrUnexpectedEOF", err)
						}
						return
					}
				})
			}
			if err := os.Truncate(path, 10_000); err != nil {
				t.Error(err)
			}
			wg.Wait()
		}
	})
}

// TestGuardPassesPanics: a panic of the function, or a fault of other memory, is not an error of
// the map.
func TestGuardPassesPanics(t *testing.T) {
	_, m := mapFile(t, newSystem(t, ufile.Options{}), fileOf(t, random(5000)), os.O_RDONLY)
	if err := m.Guard(func() error { return io.ErrClosedPipe }); err != io.ErrClosedPipe {
		t.Errorf("Guard = %v, want the error of the function", err)
	}
	defer func() {
		if recover() != "mine" {
			t.Error("the panic was lost")
		}
	}()
	_ = m.Guard(func() error { panic("mine") })
}
