// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

var soakFlag = flag.Duration("soak", 0, "how long TestSoak lasts; 0: two seconds")

// soak is shared by the goroutines of TestSoak.
type soak struct {
	t        *testing.T
	r        *Reactor
	wet, dry int // pipes
	file     int
	content  []byte
	pipes    [][2]int // of the streams

	stop                              atomic.Bool
	ops, cancelled, bytes, full, late atomic.Int64
}

var errSoaked = errors.New("changed my mind")

// TestSoak lets ten thousand goroutines cancel at random: by context, by ID, by timers, and
// streams. Each operation must end once, its buffer must not be written to after that, and
// no byte may be lost. With the race detector there are fewer goroutines, because it cannot
// track as many.
func TestSoak(t *testing.T) {
	d := *soakFlag
	goroutines := 10_000
	if d == 0 {
		d = time.Second
	}
	if raceEnabled {
		goroutines = 3000
	}
	if testing.Short() {
		d, goroutines = d/8, 300
	}
	newSoak(t, open(t, Options{Loops: 2})).run(goroutines, d)
}

func newSoak(t *testing.T, r *Reactor) *soak {
	s := &soak{t: t, r: r}
	file, content := pattern(t, 1<<16)
	s.file, s.content = int(file.Fd()), content
	for range 50 {
		rd, wr := pipe(t)
		s.pipes = append(s.pipes, [2]int{rd, wr})
	}
	return s
}

func (s *soak) run(goroutines int, d time.Duration) {
	t := s.t
	var wetIn int
	s.wet, wetIn = pipe(t)
	s.dry, _ = pipe(t)
	var all, feeding sync.WaitGroup
	for i := range goroutines {
		all.Go(func() { s.goroutine(rand.New(rand.NewPCG(uint64(i), 9))) })
	}
	var fed int64
	feeding.Go(func() {
		for !s.stop.Load() {
			n, _ := syscall.Write(wetIn, make([]byte, 1+rand.IntN(64)))
			fed += int64(max(n, 0))
			runtime.Gosched()
		}
	})
	streaming := make(chan struct{})
	go func() { defer close(streaming); s.streams() }()
	time.AfterFunc(d, func() { s.stop.Store(true) })
	ended := make(chan struct{})
	go func() { all.Wait(); <-streaming; close(ended) }()
	select {
	case <-ended:
	case <-time.After(d + 10*ringtest.Patience):
		stacks := make([]byte, 1<<20)
		t.Fatalf("operations do not end: %+v\n%s", s.r.Stats(), stacks[:runtime.Stack(stacks, true)])
	}
	// The feeder may wait for room in the pipe; the other operations are counted.
	left := make(chan int64)
	go func() {
		var n int64
		p := make([]byte, 1<<16)
		for {
			k, err := syscall.Read(s.wet, p)
			if k <= 0 || err != nil {
				left <- n
				return
			}
			n += int64(k)
		}
	}()
	feeding.Wait()
	closeAt(t, wetIn)
	if n := <-left; n+s.bytes.Load() != fed {
		t.Errorf("%d bytes were written, %d have arrived and %d are left", fed, s.bytes.Load(), n)
	}
	waitFor(t, func() bool { return s.r.Stats().InFlight == 0 })
	t.Logf("%d operations of %d goroutines in %v, %d cancelled, %d ended before their cancellation, %d refused; %+v",
		s.ops.Load(), goroutines, d, s.cancelled.Load(), s.late.Load(), s.full.Load(), s.r.Stats())
}

// closeAt closes a descriptor now, so that its cleanup does not close another file later.
func closeAt(t *testing.T, fd int) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if err := syscall.Dup3(int(null.Fd()), fd, syscall.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
}

const untouched = 0xa5

func (s *soak) goroutine(rng *rand.Rand) {
	buf := make([]byte, 64)
	for !s.stop.Load() {
		if n := bytes.Count(buf, []byte{untouched}); n != 0 && n != len(buf) {
			s.t.Errorf("a buffer was written to after the end of its operation: %x", buf)
			return
		}
		for i := range buf {
			buf[i] = untouched
		}
		switch s.ops.Add(1); rng.IntN(5) {
		case 0:
			s.byContext(rng, s.dry, buf)
		case 1:
			s.byContext(rng, s.wet, buf)
		case 2:
			s.byID(rng, buf)
		case 3:
			s.byTimer(rng, buf)
		case 4:
			s.readFile(rng)
		}
		for i := range buf { // the buffer belongs to the caller again
			buf[i] = untouched
		}
		if rng.IntN(8) == 0 {
			runtime.Gosched()
		}
	}
}

// soon returns the time after which an operation is cancelled.
func soon(rng *rand.Rand) time.Duration { return time.Duration(rng.IntN(3_000_000)) }

func (s *soak) byContext(rng *rand.Rand, fd int, buf []byte) {
	ctx, cancel := context.WithCancelCause(context.Background())
	timer := time.AfterFunc(soon(rng), func() { cancel(errSoaked) })
	defer timer.Stop()
	res := s.r.DoContext(ctx, readOp(fd, buf, 0))
	cancel(nil)
	s.ended(res, fd)
}

// ended checks a result and counts it.
func (s *soak) ended(res Result, fd int) {
	switch {
	case res.Cause == errSoaked, res.Cause == nil && res.Errno() == syscall.ECANCELED:
		s.cancelled.Add(1)
	case res.Cause == nil && res.Res > 0 && fd == s.wet:
		s.bytes.Add(int64(res.Res))
	default:
		s.t.Errorf("descriptor %d: %+v", fd, res)
	}
}

// queued waits for the callback of an operation, which must run once.
func (s *soak) queued(start func(fn func(Result)) (ID, error), then func(ID)) (Result, bool) {
	done := make(chan Result, 2)
	id, err := start(func(res Result) { done <- res })
	if errors.Is(err, ErrFull) {
		s.full.Add(1)
		return Result{}, false
	}
	if err != nil {
		s.t.Error(err)
		return Result{}, false
	}
	then(id)
	res := <-done
	select {
	case again := <-done:
		s.t.Errorf("%+v after %+v", again, res)
	default:
	}
	return res, true
}

func (s *soak) byID(rng *rand.Rand, buf []byte) {
	fd := s.dry
	if rng.IntN(2) == 0 {
		fd = s.wet
	}
	if res, ok := s.queued(func(fn func(Result)) (ID, error) { return s.r.Queue(readOp(fd, buf, 0), fn) }, func(id ID) {
		for range rng.IntN(20) {
			runtime.Gosched()
		}
		if err := s.r.Cancel(id); errors.Is(err, ErrNotFound) {
			s.late.Add(1)
		} else if err != nil {
			s.t.Error(err)
		}
	}); ok {
		s.ended(res, fd)
	}
}

// byTimer cancels an operation by a timer.
func (s *soak) byTimer(rng *rand.Rand, buf []byte) {
	fd := s.dry
	if rng.IntN(2) == 0 {
		fd = s.wet
	}
	var timer *time.Timer
	if res, ok := s.queued(func(fn func(Result)) (ID, error) { return s.r.Queue(readOp(fd, buf, 0), fn) }, func(id ID) {
		timer = time.AfterFunc(soon(rng), func() { _ = s.r.Cancel(id) })
	}); ok {
		timer.Stop()
		s.ended(res, fd)
	}
}

// readFile reads the file, and sometimes cancels the read.
func (s *soak) readFile(rng *rand.Rand) {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	timer := time.AfterFunc(soon(rng)/100, func() { cancel(errSoaked) })
	defer timer.Stop()
	off := rng.IntN(1 << 15)
	p := make([]byte, 1000)
	switch res := s.r.DoContext(ctx, readOp(s.file, p, int64(off))); {
	case res.Cause == errSoaked:
		s.cancelled.Add(1)
	case res.Res != 1000 || !bytes.Equal(p, s.content[off:off+1000]):
		s.t.Errorf("%+v", res)
	}
}

// streams starts and cancels multishot polls of pipes.
func (s *soak) streams() {
	var all sync.WaitGroup
	for i, p := range s.pipes {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 8))
			for !s.stop.Load() {
				s.stream(rng, p)
			}
		})
	}
	all.Wait()
}

func (s *soak) stream(rng *rand.Rand, p [2]int) {
	op := &Op{}
	op.SQE.PollMultishot(uring.Fd(p[0]), 1)
	end := make(chan Result, 2)
	events := 0 // unguarded: the callbacks of one stream never run at the same time
	id, err := s.r.Stream(op, func(res Result) {
		if events++; !res.More() {
			end <- res
		}
	})
	if errors.Is(err, ErrFull) {
		s.full.Add(1)
		runtime.Gosched()
		return
	}
	if err != nil {
		s.t.Error(err)
		return
	}
	s.ops.Add(1)
	for range rng.IntN(4) {
		if _, err := syscall.Write(p[1], []byte{1}); err != nil {
			s.t.Error(err)
		}
		if _, err := syscall.Read(p[0], make([]byte, 1)); err != nil {
			s.t.Error(err)
		}
		runtime.Gosched()
	}
	if err := s.r.Cancel(id); err != nil && !errors.Is(err, ErrNotFound) {
		s.t.Error(err)
	}
	res := <-end
	overflow := res.Res > 0 && s.r.Stats().Overflows > 0 // the last event ends a stream
	if res.Cause != nil || res.Errno() != syscall.ECANCELED && !overflow {
		s.t.Errorf("a stream ended with %+v", res)
	}
	s.cancelled.Add(1)
}
