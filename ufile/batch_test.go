// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

func noise(n int, seed uint64) []byte {
	p := make([]byte, n)
	rng := rand.New(rand.NewPCG(seed, 1))
	for i := range p {
		p[i] = byte(rng.Uint32())
	}
	return p
}

func TestBatchReadsManyRangesOfManyFiles(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		var files []*ufile.File
		var want [][]byte
		for i := range 3 {
			name := filepath.Join(t.TempDir(), "data")
			want = append(want, noise(300_000, uint64(i)))
			if err := os.WriteFile(name, want[i], 0o600); err != nil {
				t.Fatal(err)
			}
			f, err := s.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			files = append(files, f)
		}
		b, err := s.NewBatch(ufile.BatchOptions{Depth: 16, Buffers: 8, BufferSize: 8192})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		rng := rand.New(rand.NewPCG(9, 9))
		for range 20 {
			ranges := make([]ufile.Range, 100)
			which := make([]int, len(ranges))
			for i := range ranges {
				which[i] = rng.IntN(len(files))
				buf := make([]byte, 1+rng.IntN(5000))
				if i < 8 {
					buf = b.Buffer(i)[:1+rng.IntN(8192)]
				}
				ranges[i] = ufile.Range{File: files[which[i]], Off: int64(rng.IntN(310_000)), Buf: buf}
			}
			first := b.Read(ranges)
			for i, r := range ranges {
				content := want[which[i]]
				rest := content[min(int(r.Off), len(content)):]
				n := min(len(r.Buf), len(rest))
				if r.N != n || !bytes.Equal(r.Buf[:n], rest[:n]) {
					t.Fatalf("range %d at %d: %d bytes, want %d, content equal: %v", i, r.Off, r.N, n, bytes.Equal(r.Buf[:n], rest[:n]))
				}
				if short := n < len(r.Buf); short != (r.Err == io.EOF) || !short && r.Err != nil {
					t.Fatalf("range %d: %v for %d of %d bytes", i, r.Err, n, len(r.Buf))
				}
				if r.Err != nil && first == nil {
					t.Fatal("the error of a range is not returned")
				}
			}
		}
	})
}

func TestBatchWrites(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		name := filepath.Join(t.TempDir(), "data")
		f, err := s.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		b, err := s.NewBatch(ufile.BatchOptions{Depth: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		want := noise(64*1000, 4)
		var ranges []ufile.Range
		for i := range 64 {
			ranges = append(ranges, ufile.Range{File: f, Off: int64(i * 1000), Buf: want[i*1000 : (i+1)*1000]})
		}
		if err := b.Write(ranges); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v, content equal: %v", err, bytes.Equal(got, want))
		}
	})
}

// TestBatchAlignsForDirect reads unaligned ranges with O_DIRECT.
func TestBatchAlignsForDirect(t *testing.T) {
	if sys.ODirect == 0 {
		t.Skip("needs O_DIRECT, which this system does not have")
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		name := filepath.Join(t.TempDir(), "data")
		want := noise(100_001, 7)
		if err := os.WriteFile(name, want, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := s.OpenFile(name, os.O_RDONLY|sys.ODirect, 0)
		if err != nil {
			t.Skipf("needs a file system with O_DIRECT: %v", err)
		}
		defer f.Close()
		b, err := s.NewBatch(ufile.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		var ranges []ufile.Range
		for _, off := range []int64{0, 1, 4095, 4096, 50_000, 99_990, 100_001, 200_000} {
			ranges = append(ranges, ufile.Range{File: f, Off: off, Buf: make([]byte, 777)})
		}
		_ = b.Read(ranges)
		for _, r := range ranges {
			rest := want[min(int(r.Off), len(want)):]
			n := min(777, len(rest))
			if r.N != n || !bytes.Equal(r.Buf[:n], rest[:n]) || (n < 777) != (r.Err == io.EOF) {
				t.Errorf("at %d: %d bytes and %v, want %d", r.Off, r.N, r.Err, n)
			}
		}
	})
}

func TestBatchErrors(t *testing.T) {
	overModes(t, func(t *testing.T, s *ufile.System) {
		name := filepath.Join(t.TempDir(), "data")
		if err := os.WriteFile(name, make([]byte, 100), 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		gone, err := s.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		gone.Close()
		b, err := s.NewBatch(ufile.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		ranges := []ufile.Range{
			{File: f, Buf: make([]byte, 10)},
			{File: gone, Buf: make([]byte, 10)},
			{File: f, Off: -1, Buf: make([]byte, 10)},
			{File: nil, Buf: make([]byte, 10)},
			{File: f},
		}
		if err := b.Read(ranges); !errors.Is(err, os.ErrClosed) {
			t.Errorf("first error: %v", err)
		}
		if ranges[0].Err != nil || ranges[0].N != 10 || ranges[2].Err == nil || !errors.Is(ranges[3].Err, os.ErrInvalid) || ranges[4].Err != nil {
			t.Errorf("%+v", ranges)
		}
		if err := b.Write(ranges[:1]); err == nil {
			t.Error("writing to a file opened for reading succeeds")
		}
		if err := b.Read(nil); err != nil {
			t.Errorf("no ranges: %v", err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if err := b.Read(ranges); !errors.Is(err, os.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		f.Close() // waits for nothing: the batch holds the file no longer
	})
}

func TestBatchDoesNotAllocate(t *testing.T) {
	ringtest.NeedRing(t)
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	name := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(name, make([]byte, 1<<16), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := s.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := s.NewBatch(ufile.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ranges := make([]ufile.Range, 32)
	for i := range ranges {
		ranges[i] = ufile.Range{File: f, Off: int64(i * 512), Buf: make([]byte, 512)}
	}
	if n := ringtest.Allocations(100, func() {
		if err := b.Read(ranges); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per batch", n)
	}
	runtime.KeepAlive(ranges)
}

// TestBatchOfLargeCachedBlocks reads large blocks from the page cache, which several
// processors copy, including the end of the file and a closed file.
func TestBatchOfLargeCachedBlocks(t *testing.T) {
	const block, blocks = 64 << 10, 32
	content := random(block*blocks - 1000)
	path := fileOf(t, content)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDONLY)
		b, err := s.NewBatch(ufile.BatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ranges := make([]ufile.Range, blocks)
		for i := range ranges {
			ranges[i] = ufile.Range{File: f, Off: int64(i * block), Buf: make([]byte, block)}
		}
		if n := ringtest.Allocations(20, func() {
			if err := b.Read(ranges); err != io.EOF {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		for i, r := range ranges {
			want := content[i*block : min((i+1)*block, len(content))]
			if r.N != len(want) || (r.N < block) != (r.Err == io.EOF) || r.Err != nil && r.Err != io.EOF || !bytes.Equal(r.Buf[:r.N], want) {
				t.Errorf("range %d: %d, %v, or wrong data", i, r.N, r.Err)
			}
		}
		closed := open(t, s, path, os.O_RDONLY)
		closed.Close()
		ranges[7].File, ranges[8].File = closed, nil
		_ = b.Read(ranges)
		for i, r := range ranges[:blocks-1] {
			if bad := i == 7 || i == 8; bad != (r.Err != nil) || bad != (r.N == 0) {
				t.Errorf("range %d of a batch with a closed file: %d, %v", i, r.N, r.Err)
			}
		}
	})
}

// TestDroppedBatchClosesItsRing drops batches without Close.
func TestDroppedBatchClosesItsRing(t *testing.T) {
	if err := features.HaveIOURing(); err != nil {
		t.Skip(err)
	}
	awaitNoRings(t)
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	f := open(t, s, fileOf(t, noise(4096, 1)), os.O_RDONLY)
	func() {
		b, err := s.NewBatch(ufile.BatchOptions{Buffers: 2, BufferSize: 4096})
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Read([]ufile.Range{{File: f, Buf: b.Buffer(0)}}); err != nil {
			t.Fatal(err)
		}
	}()
	f.Close()
	defer func() { // the list of descriptors orders the close before later tests, which replace sys.FDTrace
		if b, err := s.NewBatch(ufile.BatchOptions{}); err != nil || b.Close() != nil {
			t.Error(err)
		}
	}()
	for deadline := time.Now().Add(ringtest.Patience); rings(t) > 0; time.Sleep(10 * time.Millisecond) {
		if runtime.GC(); time.Now().After(deadline) {
			t.Fatalf("%d rings are left", rings(t))
		}
	}
}
