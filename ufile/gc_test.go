// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// TestCollectorUnderMemoryPressure makes every buffer, batch and reader unreachable as soon
// as possible, while the collector runs continually and returns memory to the system.
func TestCollectorUnderMemoryPressure(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 20))
	const size = 1 << 20
	content := random(size)
	path := fileOf(t, content)
	rounds := ringtest.Rounds(20, 4)
	modes := modes
	if testing.Short() && features.HaveIOURing() == nil {
		modes = []ufile.Mode{ufile.ModeRing} // the kernel uses the memory after the call
	}
	for _, mode := range modes {
		for _, direct := range []int{0, sys.ODirect} {
			t.Run(fmt.Sprintf("%v,direct=%v", mode, direct != 0), func(t *testing.T) {
				if direct != 0 {
					needDirect(t, path)
				}
				s := newSystem(t, ufile.Options{Mode: mode})
				f := open(t, s, path, os.O_RDWR|direct)
				var wg sync.WaitGroup
				for g := range 8 {
					wg.Go(func() {
						rng := rand.New(rand.NewPCG(uint64(g), 1))
						for range rounds {
							oneOfAll(t, s, f, rng, content)
						}
					})
				}
				wg.Wait()
				debug.FreeOSMemory()
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
					t.Errorf("the file has changed: %v", err)
				}
			})
		}
	}
}

// oneOfAll does one operation with new memory and checks its result.
func oneOfAll(t *testing.T, s *ufile.System, f *ufile.File, rng *rand.Rand, content []byte) {
	const block = 4096
	off := rng.IntN(len(content)/block-16) * block
	want := content[off:]
	switch rng.IntN(5) {
	case 0:
		p := ufile.AlignedBuffer(block * (1 + rng.IntN(15)))
		if n, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p, want[:n]) {
			t.Errorf("ReadAt at %d: %d, %v, or wrong data", off, n, err)
		}
	case 1:
		p := ufile.AlignedBuffer(block * (1 + rng.IntN(15)))
		copy(p, want)
		if n, err := f.WriteAt(p, int64(off)); n != len(p) || err != nil {
			t.Errorf("WriteAt at %d: %d, %v", off, n, err)
		}
	case 2:
		b, err := s.NewBatch(ufile.BatchOptions{Depth: 4, Buffers: 2, BufferSize: block})
		if err != nil {
			t.Error(err)
			return
		}
		defer b.Close()
		ranges := make([]ufile.Range, 12)
		for i := range ranges {
			ranges[i] = ufile.Range{File: f, Off: int64(off + i*block), Buf: ufile.AlignedBuffer(block)}
			switch {
			case i < 2:
				ranges[i].Buf = b.Buffer(i)
			case i < 4:
				ranges[i].Buf = make([]byte, block-1) // through the batch's own aligned memory
				if name, _ := s.Backend(); name != "io_uring" {
					ranges[i].Buf = ufile.AlignedBuffer(block)
				}
			}
		}
		if err := b.Read(ranges); err != nil {
			t.Errorf("batch at %d: %v", off, err)
		}
		for i, r := range ranges {
			if !bytes.Equal(r.Buf, want[i*block:][:len(r.Buf)]) {
				t.Errorf("range %d of a batch at %d is not the file's data", i, off)
			}
		}
	case 3: // the reader is dropped with blocks in flight
		r := ufile.NewReader(f, ufile.ReaderOptions{Offset: int64(off), BlockSize: block})
		p := make([]byte, 9*block)
		if _, err := io.ReadFull(r, p); err != nil || !bytes.Equal(p, want[:len(p)]) {
			t.Errorf("Reader at %d: %v, or wrong data", off, err)
		}
	case 4:
		garbage := make([][]byte, 64)
		for i := range garbage {
			garbage[i] = bytes.Repeat([]byte{0xff}, 1+rng.IntN(8192))
		}
		if garbage[63][0] != 0xff {
			t.Error("impossible")
		}
	}
}
