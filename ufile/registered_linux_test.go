// SPDX-License-Identifier: MIT

package ufile

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestLostRegistration reads and writes with memory that the rings have not registered although the
// System takes it for registered, as it is between the Close of a pool and the submission.
// Promise: ufile/right-result-error
func TestLostRegistration(t *testing.T) {
	ringtest.NeedRing(t)
	s, err := NewSystem(Options{Mode: ModeRing})
	if err != nil {
		t.Skipf("needs io_uring: %v", err)
	}
	want := make([]byte, 1<<16)
	for i := range want {
		want[i] = byte(rand.Uint32())
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, want, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenFile(path, os.O_RDWR|syscall.O_DIRECT, 0)
	if err != nil {
		t.Skipf("needs O_DIRECT: %v", err)
	}
	defer f.Close()
	b, err := s.NewBuffers(2, 8192)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	p := b.Get()
	if n, err := f.ReadAt(p, 0); n != len(p) || err != nil {
		t.Fatal(n, err)
	}
	on := b.on.Load()
	if on == nil {
		n, reason := b.Registered()
		t.Skipf("needs registered buffers: %d, %s", n, reason)
	}
	other, err := on.rings.RegisterBuffer(AlignedBuffer(4096))
	if err != nil {
		t.Fatal(err)
	}
	for _, index := range []uint16{other, other + 1, 999} {
		b.on.Store(&registration{on.rings, index, on.memory})
		clear(p)
		if n, err := f.ReadAt(p, 4096); n != len(p) || err != nil || !bytes.Equal(p, want[4096:][:n]) {
			t.Errorf("index %d: ReadAt = %d, %v, or wrong data", index, n, err)
		}
		if n, err := f.WriteAt(p, 4096); n != len(p) || err != nil {
			t.Errorf("index %d: WriteAt = %d, %v", index, n, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		if n, err := f.ReadAtContext(ctx, p, 0); n != len(p) || err != nil || !bytes.Equal(p, want[:n]) {
			t.Errorf("index %d: ReadAtContext = %d, %v, or wrong data", index, n, err)
		}
		cancel()
	}
	b.on.Store(on)
	if got := f.Stats(); got.Fixed != 10 || got.Ring != 19 {
		t.Errorf("%+v", got)
	}
	on.rings.UnregisterBuffer(other)
}
