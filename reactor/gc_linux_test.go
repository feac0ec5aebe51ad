// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"testing"
	"weak"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// deepRead reads at the bottom of a stack that has to grow and move, into an array on that
// stack where the operation allows it.
func deepRead(r *Reactor, fd int, want byte, depth int) error {
	var p [512]byte
	if depth > 0 {
		return deepRead(r, fd, want, depth-1)
	}
	if res := read(r, fd, p[:], 0); res.Cause != nil || int(res.Res) != len(p) {
		return fmt.Errorf("%+v", res)
	}
	if !bytes.Equal(p[:], bytes.Repeat([]byte{want}, len(p))) {
		return fmt.Errorf("read other bytes than were written: %x", p[:8])
	}
	return nil
}

// TestCollectorAndStacks runs the collector continually, with little memory, and moves
// stacks while operations wait for data.
// Promise: reactor/buffer-belongs-operation
func TestCollectorAndStacks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(8 << 20))
	overKinds(t, func(t *testing.T, r *Reactor) {
		var wg sync.WaitGroup
		for g := range ringtest.Rounds(32, 4) {
			in, out := pipe(t)
			turn := make(chan struct{}) // the pipe never holds the data of two writes
			wg.Go(func() {
				for i := range 20 {
					if err := deepRead(r, in, byte(g+i), i*3%40); err != nil {
						t.Error(err)
					}
					turn <- struct{}{}
				}
			})
			wg.Go(func() {
				for i := range 20 {
					if _, err := syscall.Write(out, bytes.Repeat([]byte{byte(g + i)}, 512)); err != nil {
						t.Error(err)
					}
					<-turn
				}
			})
		}
		wg.Wait()
	})
}

// TestBuffersInFlightSurvive keeps the only reference to a buffer in the operation, and
// runs the collector before and after the data arrives.
// Promise: reactor/buffer-belongs-operation
func TestBuffersInFlightSurvive(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		for i := range ringtest.Rounds(6, 2) {
			in, out := pipe(t)
			done := make(chan Result, 1)
			kept := startRead(t, r, in, func(res Result) { done <- res })
			for range 3 {
				runtime.GC()
				garbage(i)
			}
			p := kept.Value()
			if p == nil {
				t.Fatal("the collector freed a buffer in flight")
			}
			want := bytes.Repeat([]byte{byte(i)}, len(p))
			if _, err := syscall.Write(out, want); err != nil {
				t.Fatal(err)
			}
			if res := <-done; res.Cause != nil || int(res.Res) != len(p) || !bytes.Equal(p[:], want) {
				t.Fatalf("%+v, or other bytes than were written", res)
			}
			p = nil
			for range 1000 {
				if runtime.GC(); kept.Value() == nil {
					break
				}
			}
			if kept.Value() != nil {
				t.Fatal("a buffer is kept after the end of its operation")
			}
		}
	})
}

// startRead starts a read into memory to which the caller keeps no reference.
func startRead(t *testing.T, r *Reactor, in int, fn func(Result)) weak.Pointer[[4096]byte] {
	t.Helper()
	p := new([4096]byte)
	if _, err := r.Queue(readOp(in, p[:], 0), fn); err != nil {
		t.Fatal(err)
	}
	return weak.Make(p)
}

// garbage reuses the memory that the collector has freed.
func garbage(i int) {
	for n := range 64 {
		if p := bytes.Repeat([]byte{0xff}, 4096); p[i+n] != 0xff {
			panic("impossible")
		}
	}
}
