// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"weak"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/ufile"
)

// withoutDescriptors runs f while the process cannot open another descriptor.
func withoutDescriptors(t *testing.T, f func()) {
	t.Helper()
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	next, err := syscall.Open(os.DevNull, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(syscall.Close(next), syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: uint64(next), Max: was.Max})); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
			t.Errorf("cannot restore RLIMIT_NOFILE: %v", err)
		}
	}()
	f()
}

// Promise: ufile/right-result-error
func TestRingsThatCannotBeOpened(t *testing.T) {
	needRing(t)
	t.Run("ring", func(t *testing.T) { // an explicit choice does not fall back
		f := open(t, newSystem(t, ufile.Options{Mode: ufile.ModeRing}), fileOf(t, random(100)), os.O_RDWR)
		p := make([]byte, 10)
		withoutDescriptors(t, func() {
			for op, do := range map[string]func([]byte, int64) (int, error){"read": f.ReadAt, "write": f.WriteAt} {
				n, err := do(p, 0)
				e, ok := err.(*fs.PathError)
				if n != 0 || !ok || e.Op != op || !errors.Is(err, syscall.EMFILE) {
					t.Errorf("%s: %d, %v", op, n, err)
				}
			}
		})
		readAt(t, f, p, 0)
		writeAt(t, f, p, 0)
		if got := f.Stats(); got != (ufile.Stats{Ring: 2}) {
			t.Errorf("%+v", got)
		}
	})
	t.Run("auto", func(t *testing.T) {
		path := fileOf(t, random(8192))
		needDirect(t, path) // there is no page cache to read from
		s := newSystem(t, ufile.Options{})
		f := open(t, s, path, os.O_RDONLY|sys.ODirect)
		p := ufile.AlignedBuffer(4096)
		withoutDescriptors(t, func() { readInRing(t, f, p) })
		if name, reason := s.Backend(); name != "plain" || !strings.Contains(reason, syscall.EMFILE.Error()) {
			t.Errorf("backend %q, reason %q", name, reason)
		}
		readAt(t, f, p, 4096)
		if got := f.Stats(); got != (ufile.Stats{Plain: 2}) {
			t.Errorf("%+v", got)
		}
		// Another file can be opened now: descriptors are available again.
		opened := 0
		stop := ringtest.OnFD(func(int, bool) { opened++ })
		readInRing(t, open(t, s, path, os.O_RDONLY|sys.ODirect), p)
		stop()
		if name, reason := s.Backend(); name != "io_uring" || opened == 0 {
			t.Errorf("after the shortage: backend %q, reason %q, %d rings opened", name, reason, opened)
		}
	})
}

// breakRings replaces the rings that open opens by another file.
func breakRings(t *testing.T, open func()) {
	t.Helper()
	var fds []int
	stop := ringtest.OnFD(func(fd int, opened bool) {
		if opened {
			fds = append(fds, fd)
		}
	})
	open()
	stop()
	if len(fds) == 0 {
		t.Fatal("no ring was opened")
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for _, fd := range fds {
		if err := syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRingsThatFail breaks rings that have worked: reads and writes continue by system
// calls, unless rings were requested.
// Promise: ufile/right-result-error
func TestRingsThatFail(t *testing.T) {
	needRing(t)
	awaitNoRings(t)
	content := random(1 << 20)
	path := fileOf(t, content)
	one := reactor.Options{Loops: 1}
	t.Run("auto", func(t *testing.T) {
		needDirect(t, path)
		logger, await := ringtest.Logger(t)
		s := newSystem(t, ufile.Options{Reactor: one, Logger: logger})
		f := open(t, s, path, os.O_RDWR|sys.ODirect)
		breakRings(t, func() { readInRing(t, f, ufile.AlignedBuffer(4096)) })
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				p := ufile.AlignedBuffer(4096)
				for i := range 20 {
					off := (g*20 + i) % 256 * 4096
					if n, err := f.ReadAt(p, int64(off)); err != nil || !bytes.Equal(p[:n], content[off:off+4096]) {
						t.Errorf("ReadAt at %d = %d, %v, or wrong data", off, n, err)
					}
					if n, err := f.WriteAt(p, int64(off)); n != len(p) || err != nil {
						t.Errorf("WriteAt at %d = %d, %v", off, n, err)
					}
				}
			})
		}
		wg.Wait()
		if name, reason := s.Backend(); name != "plain" || !strings.Contains(reason, "ring failed") {
			t.Errorf("backend %q, reason %q", name, reason)
		}
		await("backend=io_uring")
		await("plain calls are used instead")
		if err := f.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n := rings(t); n != 0 {
			t.Errorf("%d rings are left, want 0", n)
		}
	})
	t.Run("ring", func(t *testing.T) {
		f := open(t, newSystem(t, ufile.Options{Mode: ufile.ModeRing, Reactor: one}), path, os.O_RDONLY)
		breakRings(t, func() { readAt(t, f, make([]byte, 10), 0) })
		n, err := f.ReadAt(make([]byte, 10), 0)
		if e, ok := err.(*fs.PathError); n != 0 || !ok || e.Op != "read" {
			t.Errorf("ReadAt = %d, %v", n, err)
		}
		if err := f.Close(); err == nil {
			t.Error("Close did not report that the ring has failed")
		}
	})
}

// TestRingOfABatchThatFails breaks the ring of a batch. The ranges in flight end with the
// error. The other ranges, and those of later calls, are done by system calls.
func TestRingOfABatchThatFails(t *testing.T) {
	needRing(t)
	const block, count, depth = 4096, 16, 4
	content := random(block * count)
	path := fileOf(t, content)
	needDirect(t, path)
	for _, write := range []bool{false, true} {
		op := map[bool]string{false: "read", true: "write"}[write]
		t.Run(op, func(t *testing.T) {
			s := newSystem(t, ufile.Options{})
			f := open(t, s, path, os.O_RDWR|sys.ODirect)
			var b *ufile.Batch
			breakRings(t, func() {
				var err error
				if b, err = s.NewBatch(ufile.BatchOptions{Depth: depth}); err != nil {
					t.Fatal(err)
				}
			})
			do := func() ([]ufile.Range, error) {
				ranges := make([]ufile.Range, count)
				for i := range ranges {
					ranges[i] = ufile.Range{File: f, Off: int64(i * block), Buf: ufile.AlignedBuffer(block)}
					if write {
						copy(ranges[i].Buf, content[i*block:])
					}
				}
				if write {
					return ranges, b.Write(ranges)
				}
				return ranges, b.Read(ranges)
			}
			failed := 0
			ranges, err := do()
			for i, r := range ranges {
				if e, ok := r.Err.(*fs.PathError); ok && e.Op == op && r.N == 0 {
					failed++
				} else if r.Err != nil || r.N != block || !bytes.Equal(r.Buf, content[i*block:][:block]) {
					t.Errorf("range %d: %d, %v, or wrong data", i, r.N, r.Err)
				}
			}
			if failed == 0 || failed > depth || err == nil {
				t.Errorf("%d ranges failed, error %v", failed, err)
			}
			ranges, err = do()
			for i, r := range ranges {
				if r.Err != nil || r.N != block || !bytes.Equal(r.Buf, content[i*block:][:block]) {
					t.Errorf("later, range %d: %d, %v, or wrong data", i, r.N, r.Err)
				}
			}
			if got := contentOf(t, f); err != nil || !bytes.Equal(got, content) {
				t.Errorf("later: %v, or wrong data", err)
			}
			_ = b.Close() // it may report that the ring has failed
			if err := f.Close(); err != nil {
				t.Errorf("the batch still holds the file: %v", err)
			}
		})
	}
}

// TestRingOfABatchThatNeverAnswers breaks the ring of a batch while the kernel has taken an
// operation that does not end. The memory of the operation outlives the caller's Range.
// Promise: ufile/right-result-error
func TestRingOfABatchThatNeverAnswers(t *testing.T) {
	needRing(t)
	if !sys.Faulty {
		t.Skip("needs a build with the race detector, which has the system-call hook")
	}
	path := fileOf(t, random(8192))
	needDirect(t, path)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	pipe := int32(r.Fd())
	synctest.Test(t, func(t *testing.T) { // the batch waits for ten seconds
		s := newSystem(t, ufile.Options{})
		f := open(t, s, path, os.O_RDONLY|sys.ODirect)
		calls := 0
		sys.SetFaults(&sys.Faults{
			Call: func(_ string, n int) (int, syscall.Errno) { return n, 0 },
			Enter: func(entries []*abi.SQE) (int, syscall.Errno) {
				if calls++; calls > 1 {
					return 0, syscall.EPERM
				}
				entries[0].Fd, entries[0].Off = pipe, ^uint64(0) // nothing is ever written to it
				return 1, 0
			},
		})
		defer sys.SetFaults(nil)
		b, err := s.NewBatch(ufile.BatchOptions{Depth: 4})
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		ranges := []ufile.Range{
			{File: f, Buf: ufile.AlignedBuffer(4096)},
			{File: f, Buf: ufile.AlignedBuffer(4096), Off: 4096},
		}
		memory := weak.Make(&ranges[0].Buf[0])
		if err := b.Read(ranges); !errors.Is(err, syscall.EPERM) || !errors.Is(ranges[0].Err, syscall.EPERM) {
			t.Fatalf("Read = %v, %v", err, ranges[0].Err)
		}
		ranges[0].Buf = ufile.AlignedBuffer(4096)
		if err := b.Read(ranges); err != nil {
			t.Errorf("by plain calls: %v", err)
		}
		runtime.GC()
		runtime.GC()
		if memory.Value() == nil {
			t.Error("memory that the kernel may write to has been freed")
		}
	})
}
