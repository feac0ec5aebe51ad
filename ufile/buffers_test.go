// SPDX-License-Identifier: MIT

package ufile_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/ufile"
)

func newBuffers(t testing.TB, s *ufile.System, n, size int) *ufile.Buffers {
	t.Helper()
	b, err := s.NewBuffers(n, size)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() }) // some tests have closed it
	return b
}

// useBuffers reads and writes random blocks of a file from many goroutines, with buffers of the pool
// that next returns.
func useBuffers(t *testing.T, f *ufile.File, content []byte, goroutines, rounds int, next func() *ufile.Buffers) {
	const block = 4096
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 7))
			for range rounds {
				b := next()
				p := b.Get()
				n := block * (1 + rng.IntN(len(p)/block))
				at := block * rng.IntN(len(p)/block-n/block+1)
				off := block * rng.IntN((len(content)-n)/block)
				q, want := p[at:][:n], content[off:][:n]
				if g%4 == 0 {
					copy(q, want)
					if m, err := f.WriteAt(q, int64(off)); m != n || err != nil {
						t.Errorf("WriteAt(%d bytes, %d) = %d, %v", n, off, m, err)
					}
				} else if m, err := f.ReadAt(q, int64(off)); m != n || err != nil || !bytes.Equal(q, want) {
					t.Errorf("ReadAt(%d bytes, %d) = %d, %v, or wrong data", n, off, m, err)
				}
				clear(p) // it is the caller's
				b.Put(p)
			}
		})
	}
	wg.Wait()
}

// TestBuffers reads and writes with O_DIRECT in every mode.
func TestBuffers(t *testing.T) {
	const size, n = 12 << 10, 10
	content := random(1 << 20)
	overModes(t, func(t *testing.T, s *ufile.System) {
		path := fileOf(t, content)
		needDirect(t, path)
		f := open(t, s, path, os.O_RDWR|sys.ODirect)
		early := newBuffers(t, s, n, size) // before the rings are open
		if got, reason := early.Registered(); got != 0 || reason == "" {
			t.Errorf("without rings %d are registered, reason %q", got, reason)
		}
		useBuffers(t, f, content, 16, ringtest.Rounds(200, 30), func() *ufile.Buffers { return early })
		late := newBuffers(t, s, n, size)
		useBuffers(t, f, content, 16, ringtest.Rounds(200, 30), func() *ufile.Buffers { return late })
		stats, reads := f.Stats(), 2*16*ringtest.Rounds(200, 30)
		if stats.Ring+stats.Plain < uint64(reads) || stats.Fixed > stats.Ring {
			t.Errorf("%d operations are counted as %+v", reads, stats)
		}
		name, why := s.Backend()
		got, reason := early.Registered()
		switch {
		case name == "plain":
			if got != 0 || reason != why || stats.Fixed != 0 {
				t.Errorf("%d are registered, reason %q, want %q; %+v", got, reason, why, stats)
			}
		case got < n: // little locked memory, or a kernel without sparse tables
			t.Logf("%d are registered: %s", got, reason)
			if reason == "" {
				t.Error("no reason")
			}
		case reason != "" || stats.Ring > 0 && stats.Fixed == 0:
			t.Errorf("all are registered: reason %q, %+v", reason, stats)
		}
		t.Logf("%+v", stats)
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, content) {
			t.Errorf("the file has changed: %v", err)
		}
	})
}

// needRegistered skips the test where the kernel registers no buffer, and returns a file opened with
// O_DIRECT whose rings are open.
func needRegistered(t *testing.T, s *ufile.System, content []byte) *ufile.File {
	t.Helper()
	path := fileOf(t, content)
	needDirect(t, path)
	f := open(t, s, path, os.O_RDWR|sys.ODirect)
	readInRing(t, f, ufile.AlignedBuffer(4096))
	if n, reason := newBuffers(t, s, 1, 4096).Registered(); n == 0 {
		ringtest.NeedKernel(t, "sparse tables of buffers", "5.19")
		t.Skipf("needs registered buffers: %s", reason)
	}
	return f
}

// TestRegisteredIsUsed reads into registered memory, into parts of it, across two buffers, and into other
// memory.
func TestRegisteredIsUsed(t *testing.T) {
	content := random(1 << 18)
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	f := needRegistered(t, s, content)
	b := newBuffers(t, s, 4, 8192)
	p := b.Get()
	registered := uint64(0)
	for _, test := range []struct {
		p    []byte
		used bool
	}{
		{p, true}, {p[4096:], true}, {p[:4096], true}, {ufile.AlignedBuffer(8192), false},
	} {
		readAt(t, f, test.p, 4096)
		if !bytes.Equal(test.p, content[4096:][:len(test.p)]) {
			t.Error("wrong data")
		}
		writeAt(t, f, test.p, 4096)
		if test.used {
			registered += 2
		}
		if got := f.Stats().Fixed; got != registered {
			t.Errorf("%d operations with registered memory, want %d", got, registered)
		}
	}
	if n, err := f.ReadAt(p, int64(len(content)-4096)); n != 4096 || err == nil {
		t.Errorf("across the end: %d, %v", n, err)
	}
	// Without O_DIRECT the kernel copies.
	g := open(t, s, f.Name(), os.O_RDONLY)
	readAt(t, g, p, 0)
	if got := g.Stats(); got.Fixed != 0 || got.Ring != 1 {
		t.Errorf("a buffered read: %+v", got)
	}
	// A ring counts as in TestLittleLockedMemory, where the limit is low.
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	before := f.Stats()
	readAt(t, f, p, 0)
	if got := f.Stats(); got.Fixed != before.Fixed || got.Ring != before.Ring+1 || !bytes.Equal(p, content[:len(p)]) {
		t.Errorf("after Close: %+v, before %+v", got, before)
	}
}

// TestBuffersOutliveRings closes all files, and with them the rings, and opens another one.
func TestBuffersOutliveRings(t *testing.T) {
	content := random(1 << 16)
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	f := needRegistered(t, s, content)
	b := newBuffers(t, s, 4, 4096)
	for range 3 {
		readAt(t, f, b.Get(), 0)
		if n, reason := b.Registered(); n != 4 || reason != "" {
			t.Errorf("%d are registered, reason %q", n, reason)
		}
		if got := f.Stats().Fixed; got != 1 {
			t.Errorf("%d operations with registered memory, want 1", got)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if n, reason := b.Registered(); n != 0 || reason == "" {
			t.Errorf("without rings %d are registered, reason %q", n, reason)
		}
		f = open(t, s, f.Name(), os.O_RDWR|sys.ODirect)
	}
}

// TestBuffersGetAndPut checks whose the buffers are.
func TestBuffersGetAndPut(t *testing.T) {
	s := newSystem(t, ufile.Options{})
	for _, bad := range [][2]int{{0, 1}, {1, 0}, {-1, 1}, {1, -1}, {math.MaxInt, 4096}, {2, math.MaxInt}, {math.MaxInt >> 14, 4096}} {
		if _, err := s.NewBuffers(bad[0], bad[1]); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("a pool of %v: %v", bad, err)
		}
	}
	b := newBuffers(t, s, 3, 5000)
	var got [][]byte
	for i := range 5 { // two more than there are
		p := b.Get()
		if len(p) != 5000 || cap(p) != 5000 && i < 3 || !sys.Aligned(p, ufile.DirectAlign) {
			t.Errorf("%d bytes of %d, or not aligned", len(p), cap(p))
		}
		for _, q := range got {
			if &p[0] == &q[0] {
				t.Error("one buffer twice")
			}
		}
		got = append(got, p)
	}
	b.Put(nil)
	b.Put(make([]byte, 5000))
	b.Put(got[4])          // is not of the pool
	b.Put(got[1])          // the only free one
	b.Put(got[1][100:150]) // again
	if p := b.Get(); &p[0] != &got[1][0] || len(p) != 5000 {
		t.Error("Get does not return the buffer that was put back")
	}
	if p := b.Get(); slices.ContainsFunc(got, func(q []byte) bool { return &p[0] == &q[0] }) {
		t.Error("a buffer that is in use was returned")
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the second Close: %v", err)
	}
	b.Put(got[0])
	if p := b.Get(); len(p) != 5000 || &p[0] == &got[0][0] || !sys.Aligned(p, ufile.DirectAlign) {
		t.Error("after Close: not new memory")
	}
	got[0][4999]++ // stays valid
}

// TestBuffersCloseDuringReads closes and drops pools while other goroutines read into them. The memory
// of a read stays until its end.
// Promise: ufile/buffers-memory-stays
func TestBuffersCloseDuringReads(t *testing.T) {
	content := random(1 << 20)
	overModes(t, func(t *testing.T, s *ufile.System) {
		path := fileOf(t, content)
		needDirect(t, path)
		f := open(t, s, path, os.O_RDWR|sys.ODirect)
		var mu sync.Mutex
		now, err := s.NewBuffers(8, 16<<10)
		if err != nil {
			t.Fatal(err)
		}
		stop, done := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				next, err := s.NewBuffers(8, 16<<10)
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				old := now
				now = next
				mu.Unlock()
				if i%2 == 0 {
					if err := old.Close(); err != nil {
						t.Error(err)
					}
				}
				old = nil // every second one is dropped without Close
				if i%16 == 0 {
					runtime.GC()
				}
			}
		}()
		useBuffers(t, f, content, 16, ringtest.Rounds(300, 40), func() *ufile.Buffers {
			mu.Lock()
			defer mu.Unlock()
			return now
		})
		close(stop)
		<-done
		t.Logf("%+v", f.Stats())
	})
}

// TestDroppedBuffers drops pools without Close: they are unregistered, so that there are places for
// others.
func TestDroppedBuffers(t *testing.T) {
	s := newSystem(t, ufile.Options{Mode: ufile.ModeRing})
	f := needRegistered(t, s, random(1<<16))
	for range 70 { // more than can be registered
		if _, err := s.NewBuffers(1, 4096); err != nil {
			t.Fatal(err)
		}
	}
	b := newBuffers(t, s, 1, 4096)
	for deadline := time.Now().Add(ringtest.Patience); ; runtime.Gosched() {
		runtime.GC()
		b.Close()
		b = newBuffers(t, s, 1, 4096)
		n, reason := b.Registered()
		if n == 1 {
			break
		}
		if !strings.Contains(reason, "64") || time.Now().After(deadline) {
			t.Fatalf("not registered: %s", reason)
		}
	}
	readAt(t, f, b.Get(), 0)
}

// TestBuffersWhileProcessesStart starts processes, which share the memory until they execute a program,
// while the kernel writes to it.
func TestBuffersWhileProcessesStart(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	content := random(1 << 18)
	s := newSystem(t, ufile.Options{})
	path := fileOf(t, content)
	needDirect(t, path)
	f := open(t, s, path, os.O_RDWR|sys.ODirect)
	b := newBuffers(t, s, 8, 8192)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			p, err := os.StartProcess(exe, []string{exe, "-test.run=^$"}, &os.ProcAttr{})
			if err == nil {
				_, err = p.Wait()
			}
			if err != nil {
				t.Error(err)
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	useBuffers(t, f, content, 16, ringtest.Rounds(200, 40), func() *ufile.Buffers { return b })
	close(stop)
	<-done
}

// buffersWithLittleLockedMemory is a part of TestLittleLockedMemory.
func buffersWithLittleLockedMemory(t *testing.T, s *ufile.System, f *ufile.File, content []byte, limit int) {
	const n, block = 64, 8192
	b := newBuffers(t, s, n, block)
	useBuffers(t, f, content, 32, 10, func() *ufile.Buffers { return b })
	got, reason := b.Registered()
	if got*block > limit || got < n && reason == "" {
		t.Errorf("%d buffers of %d bytes are registered, the limit is %d; reason %q", got, block, limit, reason)
	}
	t.Log(fmt.Sprint(got, " are registered: ", reason))
}
