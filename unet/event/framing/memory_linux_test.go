// SPDX-License-Identifier: MIT

package framing

import (
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/unet/event"
)

// TestMemoryOfUnfinishedBodies: bodies of 1 MiB that do not end occupy at most one and a quarter times what has arrived;
// those that were only announced, or are streamed, next to nothing.
// Promise: unet/event/framing-http-net
func TestMemoryOfUnfinishedBodies(t *testing.T) {
	if !ringtest.InChild(t, nil) { // a process that has used no other memory
		return
	}
	const size = 1 << 20
	count := ringtest.Rounds(200, 40)
	discard := func(*Request) (io.Writer, error) { return io.Discard, nil }
	for name, c := range map[string]struct {
		arrived int
		o       HTTPOptions
		most    int // bytes of memory for each body, beside 16 MiB for all
	}{
		"all but a byte": {size - 1, HTTPOptions{}, size * 5 / 4},
		"half":           {size / 2, HTTPOptions{}, size / 2 * 5 / 4},
		"announced":      {1, HTTPOptions{}, 64 << 10},
		"streamed":       {size - 1, HTTPOptions{Stream: discard}, 64 << 10},
	} {
		t.Run(name, func(t *testing.T) {
			h := HTTP(report, c.o)
			var arrived atomic.Int64
			feed := h.OnData
			h.OnData = func(c *event.Conn, data []byte) {
				feed(c, data)
				arrived.Add(int64(len(data)))
			}
			overModesOf(t, h, func(t *testing.T, s *event.Server) {
				if !ringtest.Long() && c.arrived < size-1 && !strings.HasSuffix(t.Name(), "/net") {
					t.Skip("this package has the memory, not the backend: in all modes only with RINGSIDE_LONG=1")
				}
				arrived.Store(0)
				for range 2 { // pools keep what the bodies before have left for one collection
					debug.FreeOSMemory()
				}
				before, liveBefore := occupied(t), liveHeap()
				p, head := post(size)
				p = p[:head+c.arrived]
				all := make([]net.Conn, count)
				for i := range all {
					all[i] = dial(t, s)
					if _, err := all[i].Write(p); err != nil {
						t.Fatal(err)
					}
				}
				await(t, "all has arrived", func() bool { return arrived.Load() == int64(count*len(p)) })
				took := occupied(t) - before
				most := count*max(c.most, min(2*c.arrived, size)*5/4) + 16<<20 // with memory that was not touched
				if live := int(liveHeap()) - int(liveBefore); live > most {
					t.Errorf("the heap has %d bytes, more than %d", live, most)
				}
				t.Logf("%d bodies occupy %.1f MiB", count, float64(took)/(1<<20))
				most = count*c.most + 16<<20
				if raceEnabled && c.arrived > size/4 {
					most = count*size*3/2 + 16<<20 // memory that was not touched counts, too
				}
				if took > most {
					t.Errorf("%d bytes, more than %d", took, most)
				}
				for _, c := range all {
					_ = c.Close()
				}
				await(t, "the connections have ended", func() bool { return s.Stats().Open == 0 })
			})
		})
	}
}

func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(testPatience); !done(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %v", what, testPatience)
		}
	}
}

// liveHeap returns how many bytes of the heap are in use.
func liveHeap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// occupied returns the memory of the process. The race detector's is not counted.
func occupied(t *testing.T) int {
	t.Helper()
	if raceEnabled {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.Sys - m.HeapReleased)
	}
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var total, resident int
	if _, err := fmt.Sscan(string(statm), &total, &resident); err != nil {
		t.Fatal(err)
	}
	return resident * os.Getpagesize()
}
