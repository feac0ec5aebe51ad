// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// openFile opens a file for a test that is not a script. It is closed when the test ends.
func (s suite) openFile(t *testing.T, path string, flag int) File {
	t.Helper()
	f, err := s.open(path, flag, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() }) // many tests close it
	return f
}

// file makes a file with a pattern.
func file(t *testing.T, name string, size int, seed byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, pattern(size, seed), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// stripeWrites is how often each goroutine of concurrentDisjoint writes.
func stripeWrites() int { return rounds(30, 8) }

// concurrentDisjoint gives each of 64 goroutines a stripe of one file.
func concurrentDisjoint(t *testing.T, s suite) {
	const goroutines, stripe = 64, 40000
	path := file(t, "file", goroutines*stripe, 0)
	f := s.openFile(t, path, os.O_RDWR)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			base := int64(g * stripe)
			mine := make([]byte, stripe)
			fill(mine, base, 0)
			for i := range stripeWrites() {
				off := rng.IntN(stripe)
				n := 1 + rng.IntN(min(9000, stripe-off))
				fill(mine[off:off+n], base+int64(off), byte(g+i))
				if m, err := f.WriteAt(mine[off:off+n], base+int64(off)); m != n || err != nil {
					t.Errorf("WriteAt(%d bytes, %d) = %d, %v", n, base+int64(off), m, err)
					return
				}
				if !readBack(t, f, mine, base, rng) {
					return
				}
			}
		})
	}
	wg.Wait()
	checkStripes(t, path, goroutines, stripe)
}

// readBack reads a random piece of a stripe.
func readBack(t *testing.T, f File, mine []byte, base int64, rng *rand.Rand) bool {
	off := rng.IntN(len(mine))
	n := 1 + rng.IntN(len(mine)-off)
	p := make([]byte, n)
	if m, err := f.ReadAt(p, base+int64(off)); m != n || err != nil {
		t.Errorf("ReadAt(%d bytes, %d) = %d, %v", n, base+int64(off), m, err)
		return false
	}
	if !bytes.Equal(p, mine[off:off+n]) {
		t.Errorf("ReadAt(%d bytes, %d) returns what was not written there", n, base+int64(off))
		return false
	}
	return true
}

// checkStripes performs the writes of concurrentDisjoint again, in memory.
func checkStripes(t *testing.T, path string, goroutines, stripe int) {
	t.Helper()
	want := pattern(goroutines*stripe, 0)
	for g := range goroutines {
		rng := rand.New(rand.NewPCG(uint64(g), 1))
		base := g * stripe
		for i := range stripeWrites() {
			off := rng.IntN(stripe)
			n := 1 + rng.IntN(min(9000, stripe-off))
			fill(want[base+off:base+off+n], int64(base+off), byte(g+i))
			back := rng.IntN(stripe) // as readBack draws
			rng.IntN(stripe - back)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("the file does not hold what was written")
	}
}

// concurrentTruncate reads a file that shrinks and grows. Every byte must be the
// pattern's or zero, and a short read must be at the end of the file.
func concurrentTruncate(t *testing.T, s suite) {
	const size = 64 << 10
	path := file(t, "file", size, 1)
	r := s.openFile(t, path, os.O_RDONLY)
	w := s.openFile(t, path, os.O_RDWR)
	content := pattern(size, 1)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for g := range 4 {
		readers.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			p := make([]byte, size)
			for {
				select {
				case <-stop:
					return
				default:
				}
				off := rng.IntN(size)
				n, err := r.ReadAt(p[:size-off], int64(off))
				if !consistent(p[:n], content[off:], n == size-off, err) {
					t.Errorf("ReadAt(%d bytes, %d) = %d, %v, or data from elsewhere", size-off, off, n, err)
					return
				}
			}
		})
	}
	for range rounds(50, 20) {
		for _, to := range []int64{size / 3, 0, size / 2} {
			if err := w.Truncate(to); err != nil {
				t.Error(err)
			}
		}
		if n, err := w.WriteAt(content, 0); n != size || err != nil {
			t.Errorf("WriteAt: %d, %v", n, err)
		}
	}
	close(stop)
	readers.Wait()
}

func consistent(got, content []byte, full bool, err error) bool {
	if full && err != nil || !full && err != io.EOF {
		return false
	}
	for i, b := range got {
		if b != 0 && b != content[i] {
			return false
		}
	}
	return true
}
