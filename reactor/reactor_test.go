// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func open(t testing.TB, o Options) *Reactor {
	t.Helper()
	ringtest.NeedRing(t)
	r, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return r
}

// pattern fills a file whose byte at each offset is known.
func pattern(t testing.TB, size int) (*os.File, []byte) {
	t.Helper()
	want := make([]byte, size)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range want {
		want[i] = byte(rng.Uint32())
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	if _, err := f.Write(want); err != nil {
		t.Fatal(err)
	}
	return f, want
}

func pipe(t testing.TB) (r, w int) {
	t.Helper()
	var fds [2]int
	if err := syscall.Pipe2(fds[:], syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fds[0]); syscall.Close(fds[1]) })
	return fds[0], fds[1]
}

func read(r *Reactor, fd int, p []byte, off int64) (Result, error) {
	var e uring.SQE
	e.Read(uring.Fd(fd), p, off)
	return r.Do(&e, p, nil, len(p))
}

func TestManyGoroutinesReadWhatTheFileHolds(t *testing.T) {
	for _, o := range []Options{{}, {Rings: 1, Entries: 4, InFlight: 8}, {Rings: 3, InFlight: 2}} {
		r := open(t, o)
		f, want := pattern(t, 1<<20)
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 3))
				p := make([]byte, 4096)
				for range 200 {
					off := rng.IntN(len(want))
					res, err := read(r, int(f.Fd()), p, int64(off))
					n := min(len(p), len(want)-off)
					if err != nil || int(res.Res) != n || !bytes.Equal(p[:n], want[off:off+n]) {
						t.Errorf("%+v: read at %d: %+v, %v", o, off, res, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if s := r.Stats(); s.InFlight != 0 || s.Submitted != 64*200 || s.Completed != s.Submitted || s.Overflows != 0 {
			t.Errorf("%+v: stats %+v", o, s)
		}
	}
}

func TestAFailedOperationIsAResult(t *testing.T) {
	r := open(t, Options{})
	res, err := read(r, -1, make([]byte, 1), 0)
	if err != nil || res.Res != -int32(syscall.EBADF) {
		t.Fatalf("%+v, %v; want EBADF", res, err)
	}
}

func TestCloseWaitsForOperationsInFlight(t *testing.T) {
	r := open(t, Options{Rings: 1})
	rfd, wfd := pipe(t)
	done := make(chan Result)
	go func() {
		res, _ := read(r, rfd, make([]byte, 4), 0)
		done <- res
	}()
	waitFor(t, func() bool { return r.Stats().Submitted == 1 })
	closed := make(chan error)
	go func() { closed <- r.Close() }()
	waitFor(t, func() bool { return r.closed.Load() })
	select {
	case <-closed:
		t.Fatal("closed under an operation")
	default:
	}
	if _, err := syscall.Write(wfd, []byte("data")); err != nil {
		t.Fatal(err)
	}
	if res := <-done; res.Res != 4 {
		t.Fatalf("read during close: %+v", res)
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
	if _, err := read(r, rfd, make([]byte, 4), 0); !errors.Is(err, ErrClosed) {
		t.Fatalf("read after close: %v", err)
	}
	if err := r.Close(); err != nil {
		t.Fatalf("second close: %v", err)
	}
}

// waitFor polls a condition that other goroutines bring about.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for i := 0; !cond(); i++ {
		if i > 1e8 {
			t.Fatal("the condition does not come about")
		}
		runtime.Gosched()
	}
}

// TestBackpressure starts more operations than the table holds, none of which
// can end, and then lets them end one by one.
func TestBackpressure(t *testing.T) {
	const room, readers = 4, 20
	r := open(t, Options{Rings: 1, InFlight: room})
	rfd, wfd := pipe(t)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			if res, err := read(r, rfd, make([]byte, 1), 0); err != nil || res.Res != 1 {
				t.Errorf("%+v, %v", res, err)
			}
		})
	}
	waitFor(t, func() bool { return r.loops[0].starved.Load() == readers-room })
	if held := r.loops[0].table.Held(); held != room {
		t.Errorf("%d operations held, want %d", held, room)
	}
	for range readers {
		if _, err := syscall.Write(wfd, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
}

// TestExitingThreadHarmsNobody has a goroutine that is locked to its thread
// submit somebody else's operation and take the thread with it.
func TestExitingThreadHarmsNobody(t *testing.T) {
	r := open(t, Options{Rings: 1})
	l := r.loops[0]
	rfd, wfd := pipe(t)
	for range 20 {
		l.mu.Lock()
		l.leading = true // so that the reader leaves the submission to us
		l.mu.Unlock()
		submitted := l.stats.submitted.Load()
		hold := holdKernelSlots(t, l, 2)
		done := make(chan Result)
		go func() {
			res, err := read(r, rfd, make([]byte, 1), 0)
			if err != nil {
				t.Error(err)
			}
			done <- res
		}()
		waitFor(t, func() bool {
			l.mu.Lock()
			defer l.mu.Unlock()
			return len(l.pending) == 1
		})
		exited := make(chan struct{})
		go func() {
			runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
			l.mu.Lock()
			l.leading = false
			l.flush()
			l.mu.Unlock()
			close(exited)
		}()
		<-exited
		waitFor(t, func() bool { return l.stats.submitted.Load() > submitted })
		hold()
		if _, err := syscall.Write(wfd, []byte{1}); err != nil {
			t.Fatal(err)
		}
		if res := <-done; res.Res != 1 {
			t.Fatalf("the reader got %+v", res)
		}
	}
}

// holdKernelSlots makes it look as if the kernel had n operations, so that
// pushing one more does not flush.
func holdKernelSlots(t *testing.T, l *loop, n int) (release func()) {
	t.Helper()
	var slots []*slot
	for range n {
		s, ok := l.table.Acquire()
		if !ok {
			t.Fatal("no slot")
		}
		slots = append(slots, s)
	}
	return func() {
		for _, s := range slots {
			l.release(s)
		}
	}
}

// TestFailedRing replaces the ring's descriptor by another file: what is
// submitted then ends with an error, and so does what follows.
func TestFailedRing(t *testing.T) {
	ringtest.NeedRing(t)
	r, err := New(Options{Rings: 1})
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := syscall.Dup3(int(null.Fd()), r.loops[0].ring.FD(), syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if _, err := read(r, 0, make([]byte, 1), 0); err == nil {
			t.Fatal("an operation on a broken ring succeeds")
		}
	}
	if err := r.Close(); err == nil {
		t.Error("closing does not say that the ring had failed")
	}
}

func TestIdleTurn(t *testing.T) {
	r := open(t, Options{Rings: 1})
	turn, ok := r.Idle()
	if !ok {
		t.Fatal("a fresh reactor is not idle")
	}
	if _, again := r.Idle(); again {
		t.Fatal("a turn is given twice")
	}
	turn.Done()
	if turn, ok = r.Idle(); !ok {
		t.Fatal("not idle after the turn")
	}
	turn.Done()
}

func TestDoDoesNotAllocate(t *testing.T) {
	r := open(t, Options{Rings: 1})
	f, _ := pattern(t, 4096)
	p := make([]byte, 4096)
	fd := int(f.Fd())
	if n := testing.AllocsPerRun(500, func() {
		if res, err := read(r, fd, p, 0); err != nil || res.Res != 4096 {
			t.Fatal(res, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations per operation", n)
	}
}

func TestOptionsHaveBounds(t *testing.T) {
	o := Options{Rings: -1, Entries: 1 << 20, InFlight: 1 << 20}.withDefaults()
	if o.Rings != runtime.GOMAXPROCS(0) || o.Entries != 1<<15 || o.InFlight != 1<<15 {
		t.Errorf("%+v", o)
	}
}
