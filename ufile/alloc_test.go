// SPDX-License-Identifier: MIT

package ufile_test

import (
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

func TestReadAtAndWriteAtDoNotAllocate(t *testing.T) {
	path := fileOf(t, random(1<<16))
	measure := func(t *testing.T, f *ufile.File) {
		t.Helper()
		p := ufile.AlignedBuffer(4096)
		if n := ringtest.Allocations(ringtest.Rounds(300, 50), func() { readAt(t, f, p, 8192) }); n != 0 {
			t.Errorf("ReadAt: %v allocations", n)
		}
		if n := ringtest.Allocations(ringtest.Rounds(300, 50), func() { writeAt(t, f, p, 4096) }); n != 0 {
			t.Errorf("WriteAt: %v allocations", n)
		}
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		measure(t, open(t, s, path, os.O_RDWR))
		t.Run("direct", func(t *testing.T) {
			needDirect(t, path)
			measure(t, open(t, s, path, os.O_RDWR|sys.ODirect))
		})
	})
}

// TestNoRouteAllocates reads and writes by each route, alone and with other goroutines, and
// checks the counters for the route.
func TestNoRouteAllocates(t *testing.T) {
	path := fileOf(t, make([]byte, 4<<20))
	overModes(t, func(t *testing.T, s *ufile.System) {
		if testing.Short() && !strings.HasSuffix(t.Name(), "/auto") {
			t.Skip("auto uses each of the routes; the other modes run without -short")
		}
		for _, direct := range []int{0, sys.ODirect} {
			name := "buffered"
			if direct != 0 {
				name = "direct"
			}
			t.Run(name, func(t *testing.T) {
				if direct != 0 {
					needDirect(t, path)
				}
				f := open(t, s, path, os.O_RDWR|direct)
				t.Run("ReadAt", func(t *testing.T) { noAllocations(t, f, func(p []byte) { readAt(t, f, p, 8192) }) })
				t.Run("WriteAt", func(t *testing.T) { noAllocations(t, f, func(p []byte) { writeAt(t, f, p, 4096) }) })
				t.Run("with other goroutines", func(t *testing.T) {
					defer others(f)()
					noAllocations(t, f, func(p []byte) { readAt(t, f, p, 8192) })
					noAllocations(t, f, func(p []byte) { writeAt(t, f, p, 4096) })
				})
				for _, o := range []ufile.BatchOptions{{Depth: 8}, {Depth: 8, Buffers: 32, BufferSize: 4096}} {
					batchesWithoutAllocations(t, s, f, o)
				}
			})
		}
	})
}

// noAllocations checks that do does not allocate.
func noAllocations(t *testing.T, f *ufile.File, do func(p []byte)) {
	t.Helper()
	p := ufile.AlignedBuffer(4096)
	before := f.Stats()
	if n := ringtest.Allocations(ringtest.Rounds(40, 30), func() { do(p) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	after := f.Stats()
	t.Logf("cached %d, plain %d, ring %d", after.Cached-before.Cached, after.Plain-before.Plain, after.Ring-before.Ring)
}

// others starts goroutines that read, so that the ring is not idle. The function that it
// returns stops them.
func others(f *ufile.File) (stop func()) {
	var wg sync.WaitGroup
	over := make(chan struct{})
	for range 3 {
		wg.Go(func() {
			p := ufile.AlignedBuffer(4096)
			for {
				select {
				case <-over:
					return
				default:
					_, _ = f.ReadAt(p, 1<<20)
				}
			}
		})
	}
	return func() {
		close(over)
		wg.Wait()
	}
}

func batchesWithoutAllocations(t *testing.T, s *ufile.System, f *ufile.File, o ufile.BatchOptions) {
	t.Helper()
	b, err := s.NewBatch(o)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	ranges := make([]ufile.Range, 32)
	for i := range ranges {
		p := ufile.AlignedBuffer(4096)
		if o.Buffers > 0 {
			p = b.Buffer(i)
		}
		ranges[i] = ufile.Range{File: f, Off: int64(i * 4096), Buf: p}
	}
	for name, do := range map[string]func([]ufile.Range) error{"Read": b.Read, "Write": b.Write} {
		if n := ringtest.Allocations(ringtest.Rounds(100, 60), func() {
			if err := do(ranges); err != nil {
				t.Fatal(err)
			}
		}); n != 0 {
			t.Errorf("Batch %s, %d registered: %v allocations", name, b.Registered(), n)
		}
	}
	if name, _ := s.Backend(); name != "io_uring" {
		return
	}
	for i := range ranges { // an offset and a length that O_DIRECT does not allow
		ranges[i].Off, ranges[i].Buf = int64(i*4096)+1, make([]byte, 5000)
	}
	if n := ringtest.Allocations(ringtest.Rounds(100, 60), func() {
		if err := b.Read(ranges); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("Batch Read of any part: %v allocations", n)
	}
}
