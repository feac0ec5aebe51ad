// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"runtime/trace"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
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

// pattern creates a file in which the byte at each offset is known.
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

// pair returns two ends of a connection on the loopback.
func pair(t testing.TB) (a, b int) {
	t.Helper()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	socket := func() int {
		fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
		must(err)
		return fd
	}
	ln, a := socket(), socket()
	defer syscall.Close(ln)
	must(syscall.Bind(ln, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	must(syscall.Listen(ln, 1))
	addr, err := syscall.Getsockname(ln)
	must(err)
	must(syscall.Connect(a, addr))
	b, _, err = syscall.Accept4(ln, syscall.SOCK_CLOEXEC)
	must(err)
	t.Cleanup(func() { syscall.Close(a); syscall.Close(b) })
	return a, b
}

func readOp(fd int, p []byte, off int64) *Op {
	op := &Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(fd), p, off)
	return op
}

func read(r *Reactor, fd int, p []byte, off int64) Result {
	op := Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(fd), p, off)
	return r.Do(&op)
}

// kinds are the reactors that every test runs over.
var kinds = []Options{
	{},
	{Loops: 1, Entries: 4, InFlight: 8},
	{Loops: 3, Entries: 1, InFlight: 5},
}

// overKinds runs a test with several options.
func overKinds(t *testing.T, test func(t *testing.T, r *Reactor)) {
	for _, o := range kinds {
		t.Run(fmt.Sprintf("rings=%d,entries=%d,inflight=%d", o.Loops, o.Entries, o.InFlight), func(t *testing.T) {
			test(t, open(t, o))
		})
	}
}

// over checks that no operation is left after all have ended.
func over(t *testing.T, r *Reactor) {
	t.Helper()
	if s := r.Stats(); s.InFlight != 0 {
		t.Errorf("operations left behind: %+v", s)
	}
}

func TestManyGoroutinesReadWhatTheFileHolds(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		f, want := pattern(t, 1<<20)
		each := ringtest.Rounds(100, 20)
		var wg sync.WaitGroup
		for g := range 64 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 3))
				p := make([]byte, 4096)
				for range each {
					off := rng.IntN(len(want))
					res := read(r, int(f.Fd()), p, int64(off))
					n := min(len(p), len(want)-off)
					if res.Cause != nil || int(res.Res) != n || !bytes.Equal(p[:n], want[off:off+n]) {
						t.Errorf("read at %d: %+v", off, res)
						return
					}
				}
			})
		}
		wg.Wait()
		over(t, r)
		if s := r.Stats(); s.Submitted < uint64(64*each) || s.Overflows != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestAFailedOperationIsAResult(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		res := read(r, -1, make([]byte, 1), 0)
		if res.Cause != nil || res.Errno() != syscall.EBADF {
			t.Fatalf("%+v; want EBADF", res)
		}
	})
}

func TestCloseEndsOperationsInFlight(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, _ := pipe(t)
		done := make(chan Result)
		for range 3 {
			go func() { done <- read(r, rfd, make([]byte, 4), 0) }()
		}
		waitFor(t, func() bool { return r.Stats().InFlight == 3 })
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			if res := <-done; !errors.Is(res.Cause, ErrClosed) {
				t.Errorf("read during close: %+v", res)
			}
		}
		if res := read(r, rfd, make([]byte, 4), 0); !errors.Is(res.Cause, ErrClosed) {
			t.Fatalf("read after close: %+v", res)
		}
		if _, err := r.Queue(readOp(rfd, make([]byte, 4), 0), nil); !errors.Is(err, ErrClosed) {
			t.Fatalf("queue after close: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Fatalf("second close: %v", err)
		}
	})
}

// waitFor polls a condition that other goroutines make true.
func waitFor(t testing.TB, cond func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ringtest.Patience); !cond(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("the condition did not become true")
		}
	}
}

// TestBackpressure starts more operations than the table holds, none of which can end, and
// then ends them one by one.
// Promise: reactor/full-queues-make
func TestBackpressure(t *testing.T) {
	const room, readers = 4, 20
	r := open(t, Options{Loops: 1, InFlight: room})
	rfd, wfd := pipe(t)
	var wg sync.WaitGroup
	for range readers {
		wg.Go(func() {
			if res := read(r, rfd, make([]byte, 1), 0); res.Res != 1 {
				t.Errorf("%+v", res)
			}
		})
	}
	waitFor(t, func() bool { return r.loops[0].waiters.Load() == readers-room })
	if held := r.loops[0].table.Held(); held != room {
		t.Errorf("%d operations in the table, want %d", held, room)
	}
	if _, err := r.Queue(readOp(rfd, make([]byte, 1), 0), nil); !errors.Is(err, ErrFull) {
		t.Errorf("queue on a full loop: %v", err)
	}
	for range readers {
		if _, err := syscall.Write(wfd, []byte{1}); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	over(t, r)
}

// TestSubmitterThatExits makes a goroutine that is locked to its thread submit the
// operation of another goroutine. The thread ends with the goroutine.
// Promise: reactor/cancellation-completion-exit
func TestSubmitterThatExits(t *testing.T) {
	r := open(t, Options{Loops: 1})
	l := r.loops[0]
	rfd, wfd := pipe(t)
	t.Cleanup(func() { // Close submits by itself, also if the test fails
		l.mu.Lock()
		l.leading = false
		l.mu.Unlock()
	})
	for range 20 {
		l.mu.Lock()
		l.leading = true // so that the reader leaves the submission to this goroutine
		l.mu.Unlock()
		submitted := l.stats.submitted.Load()
		hold := holdKernelSlots(t, l, shallow+2)
		done := make(chan Result)
		go func() { done <- read(r, rfd, make([]byte, 1), 0) }()
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

// holdKernelSlots makes the reactor count n operations in the kernel, so that one more does
// not flush.
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
	release = sync.OnceFunc(func() {
		for _, s := range slots {
			l.release(s)
		}
	})
	t.Cleanup(release) // Close of the reactor waits for the slots
	return release
}

// TestFailedRing replaces the ring's descriptor by another file: operations submitted after
// that end with an error, and the failure is logged.
// Promise: reactor/ring-fails-ends
func TestFailedRing(t *testing.T) {
	ringtest.NeedRing(t)
	logger, await := ringtest.Logger(t)
	r, err := New(Options{Loops: 1, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	closeAt(t, r.loops[0].ring.(kernelRing).FD())
	for range 2 {
		if res := read(r, 0, make([]byte, 1), 0); res.Cause == nil {
			t.Fatal("an operation on a broken ring succeeds")
		}
	}
	await("io_uring failed; operations on it end with this error")
	if err := r.Close(); err == nil {
		t.Error("Close did not report that the ring had failed")
	}
}

// handlerFunc is a handler of package slog.
type handlerFunc func()

func (handlerFunc) Enabled(context.Context, slog.Level) bool    { return true }
func (f handlerFunc) Handle(context.Context, slog.Record) error { f(); return nil }
func (f handlerFunc) WithAttrs([]slog.Attr) slog.Handler        { return f }
func (f handlerFunc) WithGroup(string) slog.Handler             { return f }

// TestLoggerMayUseTheReactor breaks a ring. The logger that gets the message uses the reactor, as
// a handler that writes to a file of package ufile does.
// Promise: reactor/handler-options-logger
func TestLoggerMayUseTheReactor(t *testing.T) {
	ringtest.NeedRing(t)
	var r *Reactor
	logged := make(chan Result, 1)
	r, err := New(Options{Loops: 1, Logger: slog.New(handlerFunc(func() { logged <- read(r, 0, make([]byte, 1), 0) }))})
	if err != nil {
		t.Fatal(err)
	}
	closeAt(t, r.loops[0].ring.(kernelRing).FD())
	if res := read(r, 0, make([]byte, 1), 0); !errors.Is(res.Cause, ErrFailed) {
		t.Errorf("a read on a broken ring: %+v", res)
	}
	if res := <-logged; !errors.Is(res.Cause, ErrFailed) {
		t.Errorf("a read by the handler: %+v", res)
	}
	if err := r.Close(); err == nil {
		t.Error("Close did not report that the ring had failed")
	}
}

// TestFailedRingKeepsTheBuffersItHas breaks a ring that has a read in flight. Its buffer must not
// be used again; the buffer of a later read may be.
// Promise: reactor/ring-fails-ends
func TestFailedRingKeepsTheBuffersItHas(t *testing.T) {
	ringtest.NeedRing(t)
	r, err := New(Options{Loops: 1, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	rfd, _ := pipe(t)
	done := make(chan Result, 1)
	if _, err := r.Queue(readOp(rfd, make([]byte, 8), 0), func(res Result) { done <- res }); err != nil {
		t.Fatal(err)
	}
	for r.Stats().Submitted == 0 {
		runtime.Gosched()
	}
	closeAt(t, r.loops[0].ring.(kernelRing).FD())
	if res := read(r, rfd, make([]byte, 8), 0); !errors.Is(res.Cause, ErrFailed) || errors.Is(res.Cause, ErrTaken) {
		t.Errorf("a read that the ring has not taken: %+v", res)
	}
	if err := r.Close(); err == nil {
		t.Error("Close did not report that the ring had failed")
	}
	if res := <-done; !errors.Is(res.Cause, ErrFailed) || !errors.Is(res.Cause, ErrTaken) {
		t.Errorf("a read that the ring has taken: %+v", res)
	}
}

func TestTryPlain(t *testing.T) {
	r := open(t, Options{Loops: 1})
	try := r.TryPlain
	turn, ok := try()
	if !ok {
		t.Fatal("TryPlain refused on a new reactor")
	}
	if _, again := try(); again {
		t.Fatal("TryPlain succeeded twice")
	}
	turn.Done()
	if turn, ok = try(); !ok {
		t.Fatal("TryPlain refused after Done")
	}
	turn.Done()
	stranger := make(chan bool)
	go func() {
		_, ok := r.TryPlain()
		stranger <- ok
	}()
	if <-stranger {
		t.Fatal("TryPlain succeeded on another goroutine, want a refusal: more goroutines may follow")
	}
	if _, ok := try(); ok {
		t.Fatal("TryPlain succeeded for a goroutine that alternates with another")
	}
	if turn, ok = try(); !ok {
		t.Fatal("TryPlain refused for a goroutine that is alone again")
	}
	l := r.loops[0]
	starve := func(nextTry time.Duration) { l.starvation.nextTrial.Store(int64(nextTry)) }
	for range trialsOfOne - 1 {
		starve(time.Since(epoch) + time.Hour)
		other, ok := try()
		if !ok {
			t.Fatal("TryPlain refused during starvation")
		}
		other.Done()
		starve(1) // long ago
		if _, ok := try(); ok {
			t.Fatal("no caller tried the ring after the time for a trial")
		}
		if other, ok = try(); !ok {
			t.Fatal("two callers tried the ring")
		}
		other.Done()
		if !l.starvation.yields(false) || l.starvation.yields(true) {
			t.Fatal("yields: want true for the trial only")
		}
	}
	starve(1)
	if _, ok := try(); ok || l.starvation.active() {
		t.Fatal("the last trial did not end the starvation")
	}
	l.starvation.learn(ringloop.LongYield+100*joining, 100)
	if l.starvation.active() {
		t.Fatal("a long yield with many goroutines was taken for starvation")
	}
	l.starvation.learn(ringloop.LongYield+2*joining, 1)
	l.starvation.learn(0, 0)
	l.starvation.learn(ringloop.LongYield+2*joining, 1)
	if l.starvation.active() {
		t.Fatal("single long yields, as pauses of the process cause, were taken for starvation")
	}
	l.starvation.learn(ringloop.LongYield+2*joining, 1)
	if !l.starvation.active() {
		t.Fatal("two long yields in succession were not taken for starvation")
	}
	l.starvation.learn(0, 0)
	if l.starvation.active() {
		t.Fatal("a yield that took no time did not end the starvation")
	}
	turn.Done()
}

func TestDoDoesNotAllocate(t *testing.T) {
	r := open(t, Options{Loops: 1})
	f, _ := pattern(t, 4096)
	p := make([]byte, 4096)
	fd := int(f.Fd())
	if n := ringtest.Allocations(500, func() {
		if res := read(r, fd, p, 0); res.Res != 4096 {
			t.Fatal(res)
		}
	}); n != 0 {
		t.Errorf("%v allocations per operation", n)
	}
}

func TestOptionsHaveBounds(t *testing.T) {
	o := Options{Loops: -1, Entries: 1 << 20, InFlight: 1 << 20}.withDefaults()
	if o.Loops != runtime.GOMAXPROCS(0) || o.Entries != 1<<15 || o.InFlight != 1<<15 {
		t.Errorf("%+v", o)
	}
}

// TestFlagsThatNeedARing starts operations with flags that would affect the SQEs of other
// goroutines, or would suppress the CQE.
// Promise: reactor/sqe-would-affect
func TestFlagsThatNeedARing(t *testing.T) {
	r := open(t, Options{Loops: 1})
	for _, flag := range []uring.SQEFlags{uring.SQELink, uring.SQEHardLink, uring.SQEDrain, uring.SQESkipSuccess} {
		op := new(Op)
		op.SQE.Nop().SetFlags(flag)
		if res := r.Do(op); res.Cause != errFlags {
			t.Errorf("Do with flag %#x: %+v", flag, res)
		}
		if _, err := r.Queue(op, nil); err != errFlags {
			t.Errorf("Queue with flag %#x: %v", flag, err)
		}
		if _, err := r.Stream(op, nil); err != errFlags {
			t.Errorf("Stream with flag %#x: %v", flag, err)
		}
	}
	over(t, r)
}

// TestMissingRegistrations names registered files and buffer groups, which the rings lack.
func TestMissingRegistrations(t *testing.T) {
	r := open(t, Options{Loops: 1})
	rd, wr := pipe(t)
	if _, err := syscall.Write(wr, []byte("x")); err != nil {
		t.Fatal(err)
	}
	file, group := new(Op), new(Op)
	file.Buf = make([]byte, 8)
	file.SQE.Read(uring.FixedFd(3), file.Buf, 0)
	group.SQE.Read(uring.Fd(rd), nil, 0).SetBufferGroup(7)
	buffer, slot, empty := &Op{Buf: make([]byte, 8)}, new(Op), new(Op)
	buffer.SQE.ReadFixed(uring.Fd(rd), buffer.Buf, 0, 3)
	slot.SQE.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0).SetSlot(1)
	empty.SQE.CloseDirect(1)
	for _, test := range []struct {
		op     *Op
		errno  syscall.Errno
		remedy string
	}{
		{file, syscall.EBADF, "uring.Fd"},
		{group, syscall.ENOBUFS, "ProvideBuffers"},
		{buffer, syscall.EFAULT, "without Fixed"},
		{slot, syscall.ENXIO, "SetSlot"},
		{empty, syscall.ENXIO, "SetSlot"},
	} {
		res := r.Do(test.op)
		if err := res.Err(); res.Errno() != test.errno || !errors.Is(err, test.errno) || !strings.Contains(err.Error(), test.remedy) {
			t.Errorf("%v, errno %v; want %v and %q", err, res.Errno(), test.errno, test.remedy)
		}
	}
	over(t, r)
}

// TestTrace checks that the execution trace has the regions, and a goroutine profile the
// label, exactly when the option is set.
func TestTrace(t *testing.T) {
	ringtest.NeedRing(t)
	for _, on := range []bool{false, true} {
		r, err := New(Options{Loops: 1, Trace: on})
		if err != nil {
			t.Fatal(err)
		}
		var profile, events bytes.Buffer
		if err := trace.Start(&events); err != nil {
			t.Skipf("needs an execution trace, but one is already running: %v", err)
		}
		for range 3 {
			rfd, wfd := pipe(t)
			done := make(chan Result)
			go func() { done <- read(r, rfd, make([]byte, 4), 0) }()
			waitFor(t, func() bool { return r.Stats().InFlight == 1 })
			if _, err := syscall.Write(wfd, []byte("x")); err != nil {
				t.Fatal(err)
			}
			if res := <-done; res.Res != 1 {
				t.Errorf("%+v", res)
			}
		}
		trace.Stop()
		if err := pprof.Lookup("goroutine").WriteTo(&profile, 1); err != nil {
			t.Fatal(err)
		}
		if got := strings.Contains(profile.String(), `"ringside":"reactor"`); got != on {
			t.Errorf("Trace %v: a label in the profile: %v", on, got)
		}
		for _, region := range []string{"reactor.submit", "reactor.reap"} {
			if got := bytes.Contains(events.Bytes(), []byte(region)); got != on {
				t.Errorf("Trace %v: %s in the trace: %v", on, region, got)
			}
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestNilOp passes no operation to each method: it fails, and Close does not wait for it.
func TestNilOp(t *testing.T) {
	ringtest.NeedRing(t)
	r, err := New(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	_, queued := r.Queue(nil, nil)
	_, streamed := r.Stream(nil, func(Result) {})
	for name, err := range map[string]error{"Do": r.Do(nil).Err(), "DoContext": r.DoContext(ctx, nil).Err(), "Queue": queued, "Stream": streamed} {
		if err == nil {
			t.Errorf("%s without an operation succeeds", name)
		}
	}
	if n := r.Stats().InFlight; n != 0 {
		t.Errorf("%d operations are in flight", n)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
