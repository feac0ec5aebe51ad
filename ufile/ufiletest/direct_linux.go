// SPDX-License-Identifier: MIT

package ufiletest

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
)

// block is an alignment that satisfies every common device.
const block = 4096

// needDirect skips where the file system of the temporary directory refuses
// O_DIRECT.
func needDirect(t *testing.T) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "probe")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_DIRECT, 0o600)
	if err != nil {
		t.Skipf("needs a file system with O_DIRECT: %v", err)
	}
	f.Close()
}

// needAlignment skips where O_DIRECT wants none, as on tmpfs.
func needAlignment(t *testing.T) {
	t.Helper()
	needDirect(t)
	path := filepath.Join(t.TempDir(), "probe")
	if err := os.WriteFile(path, make([]byte, 2*block), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.ReadAt(aligned(t, 2*block)[1:1+block], 1); err == nil {
		t.Skip("needs a file system on which O_DIRECT wants alignment")
	}
}

// aligned returns memory that begins at a page.
func aligned(t *testing.T, n int) []byte {
	t.Helper()
	p, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Munmap(p); err != nil {
			t.Error(err)
		}
	})
	return p
}

// directRead reads into p, which is a part of aligned memory.
func (c *script) directRead(f File, p []byte, off int64) {
	c.try(fmt.Sprintf("ReadAt(%d bytes, %d)", len(p), off), func() string {
		clear(p)
		n, err := f.ReadAt(p, off)
		return fmt.Sprintf("%d, %s, %s", n, describe(err), digest(p[:n]))
	})
}

// directAligned reads and writes blocks, around ends that are not at a block.
func directAligned(c *script) {
	needDirect(c.t)
	p := aligned(c.t, 1<<20)
	for _, size := range []int{0, 1, 100, 4095, 4096, 10000, 3<<20 + 5} {
		c.label = fmt.Sprintf("size %d: ", size)
		path := c.create("file", pattern(size, 1))
		f := c.openFile(path, os.O_RDWR|syscall.O_DIRECT)
		end := int64(size) / block * block
		for _, n := range []int{0, block, 2 * block, 1 << 20} {
			for _, off := range []int64{0, end - block, end, end + block, end + 10*block} {
				if off >= 0 {
					c.directRead(f, p[:n], off)
				}
			}
		}
		copy(p, pattern(1<<20, 2))
		for _, off := range []int64{0, end, end + 3*block} {
			c.writeAt(f, p[:2*block], off)
			c.directRead(f, p[2*block:6*block], off)
			copy(p, pattern(1<<20, 3))
		}
		c.writeAt(f, p, end)
		c.content(path)
	}
}

// directMisaligned breaks the rules of O_DIRECT one at a time.
func directMisaligned(c *script) {
	needDirect(c.t)
	path := c.create("file", pattern(10*block, 1))
	p := aligned(c.t, 4*block)
	f := c.openFile(path, os.O_RDWR|syscall.O_DIRECT)
	for _, at := range []struct {
		start, n int
		off      int64
	}{
		{1, block, 0}, {512, block, 0}, {0, 100, 0}, {0, block + 1, 0}, {0, block, 1}, {0, block, 512},
		{0, block, 100}, {3, 77, 5}, {0, 100, 10*block - 50}, {0, block, 10*block + 1}, {1, block, 20 * block},
	} {
		c.label = fmt.Sprintf("buffer %d past alignment: ", at.start)
		c.directRead(f, p[at.start:at.start+at.n], at.off)
		c.writeAt(f, p[at.start:at.start+at.n], at.off)
		c.content(path)
	}
}

// directConcurrent gives each goroutine a stripe of blocks.
func directConcurrent(t *testing.T, s suite) {
	needDirect(t)
	const blocks = 8
	goroutines := rounds(40, 24)
	path := file(t, "file", goroutines*blocks*block, 0)
	f := s.openFile(t, path, os.O_RDWR|syscall.O_DIRECT)
	memory := aligned(t, 2*goroutines*block)
	var wg sync.WaitGroup
	for g := range goroutines {
		w, r := memory[2*g*block:(2*g+1)*block], memory[(2*g+1)*block:(2*g+2)*block]
		wg.Go(func() {
			for i := range 2 * blocks {
				off := int64(g*blocks+i%blocks) * block
				fill(w, off, byte(g+i))
				if n, err := f.WriteAt(w, off); n != block || err != nil {
					t.Errorf("WriteAt at %d = %d, %v", off, n, err)
					return
				}
				n, err := f.ReadAt(r, off)
				if n != block || err != nil || !bytes.Equal(r, w) {
					t.Errorf("ReadAt at %d = %d, %v, or not what was written", off, n, err)
					return
				}
			}
		})
	}
	wg.Wait()
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := make([]byte, len(got))
	for i := range goroutines * blocks {
		off := i * block
		fill(want[off:off+block], int64(off), byte(i/blocks+blocks+i%blocks))
	}
	if !bytes.Equal(got, want) {
		t.Error("the file does not hold what was written")
	}
}

// directClose closes under reads that take as long as the device does.
func directClose(t *testing.T, s suite) {
	needDirect(t)
	closeUnderReads(t, s, syscall.O_DIRECT, func(n int) []byte { return aligned(t, n) })
}
