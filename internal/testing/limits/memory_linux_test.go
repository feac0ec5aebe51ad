// SPDX-License-Identifier: MIT

package limits

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/internal/testing/stress"
	"github.com/ringside-io/ringside/ufile"
)

// TestLittleLockedMemory runs as a user who may lock 64 KiB of memory. On kernels where
// rings count, that permits only a few small rings.
func TestLittleLockedMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("one limit is enough with -short")
	}
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	ringtest.NeedRing(t)
	if !inChild(t, nil) {
		return
	}
	dir := directory(t)
	ringtest.WithoutPrivileges(t, 1<<20+os.Getpid(), dir) // a user without locked memory
	const limit = 64 << 10
	if err := unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: limit, Max: limit}); err != nil {
		t.Fatal(err)
	}
	run(t, dir, 10, 40, func(w *environment) {
		name, reason := w.server.Backend()
		t.Logf("events: %s %s", name, reason)
		w.ending = func(w *environment) { w.registered(dir, limit) }
	})
}

// registered transfers data through a batch's buffers. At most the limit can be registered,
// and all buffers must work.
func (w *environment) registered(dir string, limit int) {
	if err := w.throughBuffers(filepath.Join(dir, "registered"), limit); err != nil {
		w.problem("registered buffers: %v", err)
	}
}

// throughBuffers uses a batch that tries to register 2 MiB.
func (w *environment) throughBuffers(name string, limit int) error {
	const size, count = 64 << 10, 32
	return withBatch(name, ufile.BatchOptions{Buffers: count, BufferSize: size}, func(f *ufile.File, b *ufile.Batch) error {
		if n := b.Registered(); n*size > limit {
			return fmt.Errorf("%d buffers of %d bytes are registered, the limit is %d", n, size, limit)
		}
		if err := moveThrough(f, b, count, size, 0, true); err != nil {
			return err
		}
		return moveThrough(f, b, count, size, 0, false)
	})
}

// withBatch makes a file and a batch, and closes them afterwards.
func withBatch(name string, o ufile.BatchOptions, use func(*ufile.File, *ufile.Batch) error) error {
	s, err := ufile.NewSystem(ufile.Options{})
	if err != nil {
		return err
	}
	f, err := s.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	b, err := s.NewBatch(o)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(use(f, b), b.Close(), f.Close())
}

// moveThrough writes or reads the part of a stream that begins at off.
func moveThrough(f *ufile.File, b *ufile.Batch, count, size int, off int64, write bool) error {
	ranges := make([]ufile.Range, count)
	for i := range ranges {
		ranges[i] = ufile.Range{File: f, Buf: b.Buffer(i), Off: off + int64(i*size)}
		clear(ranges[i].Buf)
		if write {
			stress.Bytes(ranges[i].Buf, uint64(ranges[i].Off))
		}
	}
	if write {
		return b.Write(ranges)
	}
	if err := b.Read(ranges); err != nil {
		return err
	}
	want := make([]byte, size)
	for _, r := range ranges {
		if stress.Bytes(want, uint64(r.Off)); !bytes.Equal(want, r.Buf) {
			return fmt.Errorf("wrong data at %d", r.Off)
		}
	}
	return nil
}
