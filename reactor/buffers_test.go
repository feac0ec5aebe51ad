// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func fixedRead(fd int, p []byte, off int64, index uint16) *Op {
	op := &Op{Buf: p}
	op.SQE.ReadFixed(uring.Fd(fd), p, off, index)
	return op
}

func registerBuffer(t testing.TB, r *Reactor, p []byte) uint16 {
	t.Helper()
	index, err := r.RegisterBuffer(p)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// wantNoBuffer wants the error of an operation whose buffer is not registered.
func wantNoBuffer(t testing.TB, res Result) {
	t.Helper()
	if res.Errno() != syscall.EFAULT || !errors.Is(res.Cause, syscall.EFAULT) || !strings.Contains(res.Cause.Error(), "RegisterBuffer") {
		t.Errorf("%+v, want EFAULT and the remedy", res)
	}
}

// TestRegisteredBuffers reads into parts of two buffers from many goroutines, each on the ring
// that is near.
func TestRegisteredBuffers(t *testing.T) {
	ringtest.NeedKernel(t, "sparse tables of buffers", "5.19")
	overKinds(t, func(t *testing.T, r *Reactor) {
		f, want := pattern(t, 1<<18)
		const part, parts = 4096, 64
		var memory [2][]byte
		var index [2]uint16
		for i := range memory {
			memory[i] = sys.AlignedBytes(part*parts/2, part)
			index[i] = registerBuffer(t, r, memory[i])
		}
		var wg sync.WaitGroup
		for g := range parts {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 5))
				p := memory[g%2][g/2*part:][:part]
				for range 20 {
					n := 1 + rng.IntN(part)
					off := rng.IntN(len(want) - n)
					res := r.Do(fixedRead(int(f.Fd()), p[part-n:], int64(off), index[g%2]))
					if res.Cause != nil || int(res.Res) != n || !bytes.Equal(p[part-n:], want[off:off+n]) {
						t.Errorf("%d bytes at %d: %+v", n, off, res)
					}
				}
			})
		}
		wg.Wait()
		wantNoBuffer(t, r.Do(fixedRead(int(f.Fd()), memory[0][:1], 0, index[1])))
		r.UnregisterBuffer(index[0])
		r.UnregisterBuffer(index[0]) // no effect
		r.UnregisterBuffer(mostBuffers)
		for range 4 { // on each ring
			wantNoBuffer(t, r.Do(fixedRead(int(f.Fd()), memory[0][:1], 0, index[0])))
		}
		if again := registerBuffer(t, r, memory[0]); again != index[0] {
			t.Errorf("index %d, want the free one, %d", again, index[0])
		}
		over(t, r)
	})
}

// TestManyRegisteredBuffers registers as many as possible, and what is refused.
func TestManyRegisteredBuffers(t *testing.T) {
	ringtest.NeedKernel(t, "sparse tables of buffers", "5.19")
	r := open(t, Options{Loops: 2})
	if _, err := r.RegisterBuffer(nil); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("an empty buffer: %v", err)
	}
	p := sys.AlignedBytes(4096, 4096)
	for i := range mostBuffers {
		if index := registerBuffer(t, r, p); index != uint16(i) {
			t.Fatalf("index %d, want %d", index, i)
		}
	}
	if _, err := r.RegisterBuffer(p); !errors.Is(err, syscall.ENOBUFS) {
		t.Errorf("one more: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	r.UnregisterBuffer(0)
	if _, err := r.RegisterBuffer(p); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

// TestBuffersAreSharedByRings registers a buffer with three rings: its pages are pinned once. A kernel
// that cannot share pins them for each. The kernel unpins those of closed rings some time later, so
// the test has a process of its own.
func TestBuffersAreSharedByRings(t *testing.T) {
	ringtest.NeedKernel(t, "CLONE_BUFFERS of parts", "6.13")
	if !ringtest.InChild(t, nil) {
		return
	}
	r := open(t, Options{Loops: 3})
	p := sys.AlignedBytes(1<<20, 4096)
	before := pinned(t)
	index := registerBuffer(t, r, p)
	if got := pinned(t) - before; got != len(p)>>10 {
		t.Errorf("%d KiB are pinned for %d", got, len(p)>>10)
	}
	r.UnregisterBuffer(index)
	waitFor(t, func() bool { return pinned(t) == before })
}

// pinned returns the pinned memory of the process in KiB.
func pinned(t testing.TB) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmPin:\s*(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatal("no VmPin")
	}
	n, _ := strconv.Atoi(string(m[1]))
	return n
}

// TestRestrictedBuffers registers a buffer with restricted rings, which must allow an operation that
// uses it.
// Promise: reactor/options-restrict-kernel
func TestRestrictedBuffers(t *testing.T) {
	ringtest.NeedKernel(t, "sparse tables of buffers", "5.19")
	p := sys.AlignedBytes(4096, 4096)
	f, want := pattern(t, 4096)
	r := open(t, Options{Loops: 2, Restrict: []uring.Op{uring.OpRead, uring.OpReadFixed}})
	index := registerBuffer(t, r, p)
	if res := r.Do(fixedRead(int(f.Fd()), p, 0, index)); res.Res != 4096 || !bytes.Equal(p, want) {
		t.Errorf("%+v", res)
	}
	r = open(t, Options{Loops: 2, Restrict: []uring.Op{uring.OpRead}})
	if _, err := r.RegisterBuffer(p); !errors.Is(err, syscall.EACCES) || !strings.Contains(err.Error(), "Options.Restrict") {
		t.Errorf("without READ_FIXED: %v", err)
	}
}

// tableless is a ring that cannot register buffers.
type tableless struct{ ring }

// refusing is a ring that registers no buffer, but has a table.
type refusing struct{ *kernelsim.Ring }

func (refusing) UpdateBuffers(_ int, bufs [][]byte, _ ...uint64) (int, error) {
	if bufs[0] != nil {
		return 0, syscall.ENOMEM
	}
	return 1, nil
}

// TestBuffersThatOneRingRefuses leaves no buffer registered with the other ring.
func TestBuffersThatOneRingRefuses(t *testing.T) {
	for _, test := range []struct {
		second func(*kernelsim.Ring) ring
		want   error
		remedy string
	}{
		{func(r *kernelsim.Ring) ring { return refusing{r} }, syscall.ENOMEM, "RLIMIT_MEMLOCK"},
		{func(r *kernelsim.Ring) ring { return tableless{r} }, errors.ErrUnsupported, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			k := kernelsim.New(kernelsim.Options{Seed: 1})
			defer k.Close()
			fd := k.File(make([]byte, 64))
			opened := 0
			r, err := New(Options{Loops: 2, open: func(o *Options, _ ring) (ring, parker, error) {
				simulated := k.Open(kernelsim.RingOptions{Entries: o.Entries, CQEntries: 8})
				if opened++; opened == 2 {
					return test.second(simulated), simulated.Parker(), nil
				}
				return simulated, simulated.Parker(), nil
			}})
			if err != nil {
				t.Fatal(err)
			}
			p := make([]byte, 64)
			if _, err := r.RegisterBuffer(p); !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.remedy) {
				t.Errorf("%v, want %v", err, test.want)
			}
			for range 4 {
				wantNoBuffer(t, r.Do(fixedRead(fd, p, 0, 0)))
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnregisterDuringARead unregisters a buffer, and registers another at its index, while a read
// is in flight: the read ends with its data, and the next one writes nothing.
// Promise: reactor/buffer-belongs-operation
func TestUnregisterDuringARead(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			k := kernelsim.New(kernelsim.Options{Seed: seed, Faults: kernelsim.Faults{Delay: 1, Late: 0.5}})
			defer k.Close()
			want := []byte("what the file holds")
			fd := k.File(slices.Clone(want))
			r, err := New(Options{Loops: 2, open: simOpener(k, 8)})
			if err != nil {
				t.Fatal(err)
			}
			p, q := make([]byte, len(want)), make([]byte, len(want))
			index := registerBuffer(t, r, p)
			done := make(chan Result)
			if _, err := r.Queue(fixedRead(fd, p, 0, index), func(res Result) { done <- res }); err != nil {
				t.Fatal(err)
			}
			r.UnregisterBuffer(index)
			if again := registerBuffer(t, r, q); again != index {
				t.Errorf("index %d, want %d", again, index)
			}
			if res := <-done; int(res.Res) != len(want) || !bytes.Equal(p, want) {
				t.Errorf("in flight: %+v, %q", res, p)
			}
			clear(p)
			wantNoBuffer(t, r.Do(fixedRead(fd, p, 0, index)))
			if res := r.Do(fixedRead(fd, q, 0, index)); int(res.Res) != len(want) || !bytes.Equal(q, want) {
				t.Errorf("the other buffer: %+v, %q", res, q)
			}
			if !bytes.Equal(p, make([]byte, len(p))) {
				t.Errorf("written to after its end: %q", p)
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
			for _, v := range k.Violations() {
				t.Error(v)
			}
		})
	}
}
