// SPDX-License-Identifier: MIT

package ufile

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"golang.org/x/sys/unix"
)

// evict drops a mapped file from the page cache. The kernel keeps a page that it is using
// elsewhere, so evict repeats.
func evict(t *testing.T, m *Mapped) {
	t.Helper()
	part := m.data[:len(m.data)-os.Getpagesize()]
	pages := make([]byte, len(part)/os.Getpagesize())
	for deadline := time.Now().Add(ringtest.Patience); ; time.Sleep(time.Millisecond) {
		if err := unix.Madvise(part, unix.MADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if err := unix.Fadvise(m.f.fd, 0, 0, unix.FADV_DONTNEED); err != nil {
			t.Fatal(err)
		}
		if err := sys.Resident(part, pages); err != nil {
			t.Skipf("needs mincore(2): %v", err)
		}
		if !slices.ContainsFunc(pages, func(p byte) bool { return p&1 != 0 }) {
			return
		}
		if time.Now().After(deadline) {
			t.Skip("needs a file system whose pages can be evicted")
		}
	}
}

// mapOf maps a new file of some pages that is not cached.
func mapOf(t *testing.T, pages int) *Mapped {
	t.Helper()
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, make([]byte, pages*os.Getpagesize()), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	m, err := f.Map()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	evict(t, m)
	if !m.knows {
		t.Skip("needs mincore(2) to say what is resident")
	}
	return m
}

// TestEvictedPagesAreRead: a page that the kernel has evicted is read again in the next epoch, and
// not before.
//
// Promise: ufile/mapped-memory-holds
func TestEvictedPagesAreRead(t *testing.T) {
	for _, knows := range []bool{true, false} {
		m := mapOf(t, 200)
		m.knows = knows
		m.timer.Stop()
		m.armed.Store(true) // this test advances the epoch
		page := func(i int) bool {
			t.Helper()
			// RWF_NOWAIT starts to read, and may find the page.
			reads := func() uint64 { s := m.f.Stats(); return s.Plain + s.Ring + s.Cached }
			before := reads()
			if _, err := m.Slice(int64(i*os.Getpagesize()), 1); err != nil {
				t.Fatal(err)
			}
			return reads() > before
		}
		if !page(100) {
			t.Skip("needs a file system whose pages can be evicted")
		}
		if page(100) {
			t.Error("a resident page was read again")
		}
		evict(t, m)
		if page(100) {
			t.Error("a page was read again within its epoch")
		}
		evict(t, m)
		m.tick()
		if !page(100) {
			t.Error("an evicted page was not read in the next epoch")
		}
		m.tick()
		page(100) // without the question whether it is resident: few pages of its chunk were
		if page(100) {
			t.Error("a resident page was read twice in an epoch")
		}
		if _, err := m.Slice(chunkPages<<m.shift, chunkPages<<m.shift); err != nil { // the chunk
			t.Fatal(err)
		}
		m.tick()
		if page(100) && knows {
			t.Error("a resident page of a resident chunk was read in the next epoch")
		}
	}
}

// TestFirstPageOfChunk: the first page of a chunk in an epoch is read without asking what is
// resident, the second is not.
func TestFirstPageOfChunk(t *testing.T) {
	m := mapOf(t, 200)
	for i, asked := range []bool{false, true, true} {
		if _, err := m.Slice(int64(10+i)<<m.shift, 1); err != nil {
			t.Fatal(err)
		}
		if got := m.chunks[0].epoch.Load() == m.epoch.Load(); got != asked {
			t.Errorf("after %d pages the kernel was asked: %v, want %v", i+1, got, asked)
		}
	}
	if !m.armed.Load() {
		t.Error("the timer of a map in use does not run")
	}
}

// TestMapTimerRests: the timer of a map that is not used stops, and starts again.
func TestMapTimerRests(t *testing.T) {
	m := mapOf(t, 10)
	for range 2 {
		if _, err := m.Slice(0, 1); err != nil {
			t.Fatal(err)
		}
		if !m.armed.Load() {
			t.Fatal("the timer of a map in use does not run")
		}
		m.tick()
		m.tick()
		if m.armed.Load() {
			t.Fatal("the timer of a map that is not used runs")
		}
	}
}

// TestPrefetchReads: Prefetch reads pages into the page cache.
func TestPrefetchReads(t *testing.T) {
	m := mapOf(t, 200)
	page := int64(os.Getpagesize())
	if err := m.Prefetch(Extent{0, 10 * page}, Extent{100*page + 5, 20}); err != nil {
		t.Fatal(err)
	}
	for _, i := range []int{0, 9, 100} {
		p, err := m.Slice(int64(i)*page, 1)
		if err != nil || p[0] != 0 {
			t.Fatal(p, err)
		}
	}
}

func TestMask(t *testing.T) {
	for _, c := range []struct {
		i, first, last int
		want           uint64
	}{{0, 0, 0, 1}, {0, 0, 63, ^uint64(0)}, {0, 3, 70, ^uint64(7)}, {1, 3, 70, 1<<7 - 1}, {1, 64, 64, 1}, {2, 3, 999, ^uint64(0)}} {
		if got := mask(c.i, c.first, c.last); got != c.want {
			t.Errorf("mask(%d, %d, %d) = %x, want %x", c.i, c.first, c.last, got, c.want)
		}
	}
}
