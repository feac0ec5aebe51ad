// SPDX-License-Identifier: MIT

package ufile

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
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

// TestFailedRingWithBuffers breaks the ring by EFAULT while the kernel has taken a read into registered
// memory. That is not the EFAULT of a lost registration: the memory must not be used again.
// Promise: ufile/right-result-error
func TestFailedRingWithBuffers(t *testing.T) {
	ringtest.NeedRing(t)
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	s, err := NewSystem(Options{Reactor: reactor.Options{Loops: 1}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, make([]byte, 8192), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := s.OpenFile(path, os.O_RDONLY|syscall.O_DIRECT, 0)
	if err != nil {
		t.Skipf("needs O_DIRECT: %v", err)
	}
	defer f.Close()
	r, w, err := os.Pipe() // nothing is ever written to it
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	b, err := s.NewBuffers(1, 4096)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	var armed atomic.Bool
	var calls atomic.Int32
	pipe, taken := int32(r.Fd()), make(chan struct{})
	sys.SetFaults(&sys.Faults{
		Call: func(_ string, n int) (int, syscall.Errno) { return n, 0 },
		Enter: func(entries []*abi.SQE) (int, syscall.Errno) {
			switch {
			case !armed.Load():
				return len(entries), 0
			case calls.Add(1) > 1:
				return 0, syscall.EFAULT
			}
			entries[0].Fd, entries[0].Off = pipe, ^uint64(0)
			defer close(taken)
			return 1, 0
		},
	})
	defer sys.SetFaults(nil)
	ctx, cancel := context.WithCancel(t.Context()) // such a read goes through a ring
	defer cancel()
	if _, err := f.ReadAtContext(ctx, AlignedBuffer(4096), 0); err != nil {
		t.Fatal(err)
	}
	on := b.on.Load()
	if on == nil {
		n, reason := b.Registered()
		t.Skipf("needs registered buffers: %d, %s", n, reason)
	}
	armed.Store(true)
	go func() {
		<-taken
		if _, err := f.ReadAtContext(ctx, AlignedBuffer(4096), 0); err != nil { // by a plain call
			t.Error(err)
		}
		_ = on.rings.Close() // its error is that of the ring
	}()
	if n, err := f.ReadAtContext(ctx, b.Get(), 0); n != 0 || !errors.Is(err, reactor.ErrTaken) {
		t.Errorf("ReadAtContext = %d, %v", n, err)
	}
}
