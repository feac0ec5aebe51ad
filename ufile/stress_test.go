// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// deep reads at the bottom of a stack that has to grow and move, into an array on that
// stack unless ReadAt makes it escape. No call in between may make it escape.
func deep(f *ufile.File, content []byte, off, depth, at int) error {
	var p [1024]byte
	mark := byte(off + depth)
	p[depth] = mark
	if depth == at {
		if n, err := f.ReadAt(p[:], int64(off)); err != nil || !bytes.Equal(p[:n], content[off:off+len(p)]) {
			return fmt.Errorf("read %d bytes at %d, %v, or wrong data", n, off, err)
		}
		p[depth] = mark
	}
	if depth > 0 {
		if err := deep(f, content, off, depth-1, at); err != nil {
			return err
		}
	}
	if p[depth] != mark {
		return fmt.Errorf("the stack was overwritten at depth %d", depth)
	}
	return nil
}

// TestCollectorAndStacks runs the collector continually, and stacks move, while 200
// goroutines read.
func TestCollectorAndStacks(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(1))
	content := random(1 << 20)
	path := fileOf(t, content)
	overModes(t, func(t *testing.T, s *ufile.System) {
		f := open(t, s, path, os.O_RDONLY)
		for round := range ringtest.Rounds(4, 2) { // each goroutine on a new, small stack
			var wg sync.WaitGroup
			for g := range 200 {
				wg.Go(func() {
					rng := rand.New(rand.NewPCG(uint64(g), uint64(round)))
					for range 3 {
						depth := rng.IntN(60)
						garbage := make([]byte, 4096)
						if err := deep(f, content, rng.IntN(len(content)-1024), depth, rng.IntN(depth+1)); err != nil {
							t.Error(err)
							return
						}
						garbage[depth]++
					}
				})
			}
			wg.Wait()
		}
	})
}

// TestAThousandGoroutinesOnFewRings uses far more readers and writers than the rings have
// entries.
func TestAThousandGoroutinesOnFewRings(t *testing.T) {
	const block = 4096
	goroutines := ringtest.Rounds(1000, 250)
	path := fileOf(t, make([]byte, goroutines*block))
	few := reactor.Options{Loops: 2, Entries: 8, InFlight: 32}
	for _, direct := range []bool{false, true} {
		for _, mode := range modes {
			t.Run(fmt.Sprintf("%v,direct=%v", mode, direct), func(t *testing.T) {
				flag := os.O_RDWR
				if direct {
					needDirect(t, path)
					flag |= sys.ODirect
				}
				s := newSystem(t, ufile.Options{Mode: mode, Reactor: few})
				f := open(t, s, path, flag)
				var wg sync.WaitGroup
				for g := range goroutines {
					wg.Go(func() { writeAndReadBack(t, f, int64(g)*block, byte(g)) })
				}
				wg.Wait()
				if got := s.Stats().Reactor; got.InFlight != 0 || got.Submitted != got.Completed || got.Overflows != 0 {
					t.Errorf("%+v", got)
				}
			})
		}
	}
}

func writeAndReadBack(t *testing.T, f *ufile.File, off int64, mark byte) {
	w, r := ufile.AlignedBuffer(4096), ufile.AlignedBuffer(4096)
	for i := range 3 {
		for j := range w {
			w[j] = mark + byte(i+j)
		}
		if n, err := f.WriteAt(w, off); n != len(w) || err != nil {
			t.Errorf("WriteAt at %d = %d, %v", off, n, err)
			return
		}
		if n, err := f.ReadAt(r, off); n != len(r) || err != nil || !bytes.Equal(r, w) {
			t.Errorf("ReadAt at %d = %d, %v, or other data than was written", off, n, err)
			return
		}
	}
}
