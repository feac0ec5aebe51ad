// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

// manyFiles creates files of various sizes.
func manyFiles(t *testing.T, n int) (names []string) {
	t.Helper()
	dir := t.TempDir()
	content := random(200 << 10)
	for i := range n {
		name := filepath.Join(dir, fmt.Sprint(i))
		size := []int{0, 1, 4096, 10_000, 64 << 10, 64<<10 + 1, 200 << 10}[i%7]
		if err := os.WriteFile(name, content[:size], 0o600); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			forgetCached(t, name)
		}
		names = append(names, name)
	}
	return names
}

// TestReadFiles compares each file with os.ReadFile: cached or not, larger and smaller than a
// buffer and the bound of memory, missing, a directory, more names than files at a time.
//
// Promise: ufile/files-read-once
func TestReadFiles(t *testing.T) {
	names := append(manyFiles(t, 70), t.TempDir(), filepath.Join(t.TempDir(), "missing"), "a\x00b", "")
	if _, err := os.Stat("/proc/self/status"); err == nil {
		names = append(names, "/proc/filesystems")
	}
	overModes(t, func(t *testing.T, s *ufile.System) {
		for _, o := range []ufile.ReadFilesOptions{{}, {Files: 3, Memory: 1}, {Files: 1000, Memory: 300 << 10}} {
			readAll(t, s, names, o)
		}
		for range s.ReadFiles(t.Context(), nil, ufile.ReadFilesOptions{}) {
			t.Error("a file of no names")
		}
	})
}

// readAll reads all names and compares each with os.ReadFile.
func readAll(t *testing.T, s *ufile.System, names []string, o ufile.ReadFilesOptions) {
	t.Helper()
	seen := make([]bool, len(names))
	for d := range s.ReadFiles(t.Context(), names, o) {
		if seen[d.Index] || d.Name != names[d.Index] {
			t.Fatalf("file %d, %q: seen before, or not the name %q", d.Index, d.Name, names[d.Index])
		}
		seen[d.Index] = true
		sameAsOS(t, d.Name, d.Data, d.Err)
	}
	for i, ok := range seen {
		if !ok {
			t.Errorf("%s was not yielded", names[i])
		}
	}
}

// sameAsOS compares a result with os.ReadFile.
func sameAsOS(t *testing.T, name string, data []byte, err error) {
	t.Helper()
	want, wantErr := os.ReadFile(name)
	if !bytes.Equal(data, want) || fmt.Sprint(err) != fmt.Sprint(wantErr) {
		t.Errorf("%q: %d bytes, %v; os.ReadFile has %d, %v", name, len(data), err, len(want), wantErr)
	}
}

// TestReadFile compares ReadFile with os.ReadFile, from several goroutines.
func TestReadFile(t *testing.T) {
	names := append(manyFiles(t, 21), t.TempDir(), filepath.Join(t.TempDir(), "missing"))
	overModes(t, func(t *testing.T, s *ufile.System) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for _, name := range names {
					data, err := s.ReadFile(name)
					sameAsOS(t, name, data, err)
					if err == nil && data == nil {
						t.Errorf("%s: nil without an error", name)
					}
				}
			})
		}
		wg.Wait()
	})
}

// TestReadFilesAreCounted checks that Stats has each read once, those of the page cache too, also after the garbage
// collector has found what has read.
func TestReadFilesAreCounted(t *testing.T) {
	names := manyFiles(t, 21)
	s, err := ufile.NewSystem(ufile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if _, err := s.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	for d := range s.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{Files: 3}) {
		if d.Err != nil {
			t.Fatal(d.Err)
		}
	}
	all := func() uint64 { n := s.Stats(); return n.Cached + n.Plain + n.Ring }
	before := all()
	if runtime.GOOS == "linux" && before < uint64(2*len(names)*6/7) { // one in seven is empty
		t.Errorf("%d reads of %d files are counted", before, 2*len(names))
	}
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond) // cleanups run on other goroutines
	}
	if after := all(); after != before {
		t.Errorf("%d reads are counted, %d after garbage collection", before, after)
	}
}

// TestReadFilesCancelled ends the context in the loop: every name is yielded once, those that were
// not read with the context's cause. Leaving the loop leaks nothing (ringtest.Main).
func TestReadFilesCancelled(t *testing.T) {
	names := manyFiles(t, 200)
	overModes(t, func(t *testing.T, s *ufile.System) {
		cause := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		defer cancel(nil)
		n, cancelled := 0, 0
		for d := range s.ReadFiles(ctx, names, ufile.ReadFilesOptions{Files: 4}) {
			cancel(cause)
			n++
			if errors.Is(d.Err, cause) {
				cancelled++
			} else if d.Err != nil {
				t.Error(d.Err)
			}
		}
		if n != len(names) || cancelled < len(names)/2 {
			t.Errorf("%d files, %d of them cancelled, of %d", n, cancelled, len(names))
		}
		for range ringtest.Rounds(20, 5) {
			for range s.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{Files: 8, Memory: 100 << 10}) {
				break
			}
		}
	})
}

// TestReadFilesReuseBuffers: a second loop takes the buffers of the first.
func TestReadFilesReuseBuffers(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool drops buffers at random under the race detector")
	}
	names := manyFiles(t, 4) // none larger than a buffer
	least := uint64(1 << 62)
	for range 20 { // a collection of garbage may empty the pool
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for d := range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{}) {
			if d.Err != nil {
				t.Fatal(d.Err)
			}
		}
		runtime.ReadMemStats(&after)
		least = min(least, after.TotalAlloc-before.TotalAlloc)
	}
	if least >= 64<<10 {
		t.Errorf("a loop over %d small files allocates %d bytes", len(names), least)
	}
}

// TestReadFilesDescriptors: no more files are open at a time than Options.Files.
func TestReadFilesDescriptors(t *testing.T) {
	names := manyFiles(t, 100)
	before := len(ringtest.Descriptors(t, ""))
	for range ufile.ReadFiles(t.Context(), names, ufile.ReadFilesOptions{Files: 2}) {
		if now := len(ringtest.Descriptors(t, "")); now > before+2+8 { // and rings
			t.Fatalf("%d descriptors, %d before", now, before)
		}
	}
}
