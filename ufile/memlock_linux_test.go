// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// TestLittleLockedMemory runs as a user who may lock 1 MiB of memory, 64 KiB, or none: fewer
// buffers are registered, and everything else works.
func TestLittleLockedMemory(t *testing.T) {
	const unusedUID = 61_234 // a user without locked memory
	if !ringtest.InChild(t, nil) {
		return
	}
	dir, err := os.MkdirTemp("", "ufile") // before the process changes its user
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	ringtest.WithoutPrivileges(t, unusedUID, dir)
	for _, limit := range []uint64{1 << 20, 64 << 10, 16 << 10, 0} {
		if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
			t.Fatal(err)
		}
		for _, mode := range []ufile.Mode{ufile.ModeAuto, ufile.ModePlain} {
			t.Run(fmt.Sprintf("%d,%v", limit, mode), func(t *testing.T) {
				withLittleLockedMemory(t, dir, mode, int(limit))
			})
		}
	}
	s, err := ufile.NewSystem(ufile.Options{Mode: ufile.ModeRing})
	if err != nil {
		return
	}
	b, err := s.NewBatch(ufile.BatchOptions{}) // newer kernels count rings too
	switch {
	case err == nil:
		b.Close()
	case !errors.Is(err, syscall.ENOMEM):
		t.Errorf("an explicit choice without locked memory: %v", err)
	}
}

func withLittleLockedMemory(t *testing.T, dir string, mode ufile.Mode, limit int) {
	const block, blocks = 8192, 64
	content := random(block * blocks)
	path := filepath.Join(dir, "file")
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, direct := range []int{0, sys.ODirect} {
		if direct != 0 {
			needDirect(t, path)
		}
		s := newSystem(t, ufile.Options{Mode: mode, Reactor: reactor.Options{Loops: 8}})
		f := open(t, s, path, os.O_RDWR|direct)
		b, err := s.NewBatch(ufile.BatchOptions{Buffers: blocks, BufferSize: block, Depth: 4096})
		if err != nil {
			t.Fatal(err)
		}
		n := b.Registered()
		// No registered buffer is also correct where the kernel uses huge pages: each
		// counts as a whole.
		if n*block > limit {
			t.Errorf("%d buffers of %d bytes are registered, the limit is %d", n, block, limit)
		}
		ranges := make([]ufile.Range, blocks)
		for i := range ranges {
			ranges[i] = ufile.Range{File: f, Off: int64(i * block), Buf: b.Buffer(i)}
		}
		if err := b.Read(ranges); err != nil {
			t.Error(err)
		}
		for i, r := range ranges {
			if !bytes.Equal(r.Buf, content[i*block:][:block]) {
				t.Errorf("range %d is not the file's data", i)
			}
		}
		if err := b.Write(ranges); err != nil {
			t.Error(err)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				p := ufile.AlignedBuffer(block)
				for i := range 10 {
					at := (g + i*7) % blocks * block
					if n, err := f.ReadAt(p, int64(at)); n != block || err != nil || !bytes.Equal(p, content[at:][:block]) {
						t.Errorf("ReadAt at %d: %d, %v, or wrong data", at, n, err)
					}
				}
			})
		}
		wg.Wait()
		if direct != 0 {
			buffersWithLittleLockedMemory(t, s, f, content, limit)
		}
		f.Close()
	}
	if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
		t.Errorf("the file has changed: %v", err)
	}
}
