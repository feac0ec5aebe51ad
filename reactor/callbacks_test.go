// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func TestCallbacksMayQueue(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		const depth = 200
		done := make(chan struct{})
		var step func(n int) func(Result)
		step = func(n int) func(Result) {
			return func(res Result) {
				if res.Res != 0 || res.Cause != nil {
					t.Errorf("nop: %+v", res)
				}
				if n == depth {
					close(done)
					return
				}
				op := &Op{}
				op.SQE.Nop()
				if _, err := r.Queue(op, step(n+1)); err != nil {
					t.Error(err)
					close(done)
				}
			}
		}
		step(0)(Result{})
		<-done
		waitFor(t, func() bool { return r.Stats().InFlight == 0 })
	})
}

// TestCallbacksMayExit calls runtime.Goexit in every second callback, also while the reactor
// closes. Every callback is called once.
// Promise: reactor/callback-calls-runtime
func TestCallbacksMayExit(t *testing.T) {
	r := open(t, Options{Loops: 1})
	rfd, _ := pipe(t)
	var calls atomic.Int64
	exit := func(Result) {
		if calls.Add(1)%2 == 0 {
			runtime.Goexit()
		}
	}
	queue := func(op *Op) {
		for range 50 {
			if _, err := r.Queue(op, exit); err != nil {
				t.Fatal(err)
			}
		}
	}
	nop := new(Op)
	nop.SQE.Nop()
	queue(nop)
	waitFor(t, func() bool { return calls.Load() == 50 })
	queue(readOp(rfd, make([]byte, 1), 0))
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if n := calls.Load(); n != 100 {
		t.Errorf("%d callbacks were called, want 100", n)
	}
}

func TestCancelEndsOneOperation(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, wfd := pipe(t)
		got := make(chan Result, 2)
		first, err := r.Queue(readOp(rfd, make([]byte, 1), 0), func(res Result) { got <- res })
		if err != nil {
			t.Fatal(err)
		}
		other := make(chan Result, 1)
		if _, err := r.Queue(readOp(rfd, make([]byte, 1), 0), func(res Result) { other <- res }); err != nil {
			t.Fatal(err)
		}
		if err := r.Cancel(first); err != nil {
			t.Fatal(err)
		}
		if res := <-got; res.Errno() != syscall.ECANCELED || res.Cause != nil {
			t.Fatalf("%+v", res)
		}
		if err := r.Cancel(first); !errors.Is(err, ErrNotFound) {
			t.Fatalf("cancel of an operation that has ended: %v", err)
		}
		if err := r.Cancel(ID{}); !errors.Is(err, ErrNotFound) {
			t.Fatalf("cancel of an unknown ID: %v", err)
		}
		select {
		case res := <-other:
			t.Fatalf("the other operation ended too: %+v", res)
		default:
		}
		syscall.Write(wfd, []byte{1})
		if res := <-other; res.Res != 1 {
			t.Fatalf("%+v", res)
		}
	})
}

func TestDoContext(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, wfd := pipe(t)
		cause := errors.New("changed my mind")
		ctx, cancel := context.WithCancelCause(context.Background())
		done := make(chan Result)
		go func() { done <- r.DoContext(ctx, readOp(rfd, make([]byte, 1), 0)) }()
		waitFor(t, func() bool { return r.Stats().InFlight == 1 })
		cancel(cause)
		if res := <-done; !errors.Is(res.Cause, cause) {
			t.Fatalf("%+v", res)
		}
		if res := r.DoContext(ctx, readOp(rfd, make([]byte, 1), 0)); !errors.Is(res.Cause, cause) {
			t.Fatalf("Do with a cancelled context: %+v", res)
		}
		// The cancelled read consumed no data: the next read gets it.
		syscall.Write(wfd, []byte{7})
		p := make([]byte, 1)
		if res := r.DoContext(context.Background(), readOp(rfd, p, 0)); res.Res != 1 || p[0] != 7 {
			t.Fatalf("%+v, %v", res, p)
		}
		over(t, r)
	})
}

// TestEachOperationEndsOnce makes cancellations, some of them by timers, race with data.
// Promise: reactor/operation-ends-exactly
func TestEachOperationEndsOnce(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, wfd := pipe(t)
		n := int64(ringtest.Rounds(2000, 300))
		var ended, data atomic.Int64
		var wg sync.WaitGroup
		rng := rand.New(rand.NewPCG(5, 6))
		for range n {
			var calls atomic.Int32
			wg.Add(1)
			fn := func(res Result) {
				if calls.Add(1) != 1 {
					t.Error("a callback was called twice")
				}
				switch {
				case res.Res == 1:
					data.Add(1)
				case res.Errno() == syscall.ECANCELED && res.Cause == nil:
				default:
					t.Errorf("%+v", res)
				}
				ended.Add(1)
				wg.Done()
			}
			var id ID
			var err error
			for {
				id, err = r.Queue(readOp(rfd, make([]byte, 1), 0), fn)
				if !errors.Is(err, ErrFull) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Duration(rng.IntN(2_000_000)), func() { _ = r.Cancel(id) })
			switch rng.IntN(3) {
			case 0:
				_ = r.Cancel(id)
			case 1:
				syscall.Write(wfd, []byte{1})
			}
		}
		wg.Wait()
		if ended.Load() != n {
			t.Errorf("%d operations ended, want %d", ended.Load(), n)
		}
		waitFor(t, func() bool { return r.Stats().InFlight == 0 })
	})
}

func TestStream(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, wfd := pipe(t)
		op := &Op{}
		op.SQE.PollMultishot(uring.Fd(rfd), 1) // POLLIN
		events := make(chan Result, 64)
		id, err := r.Stream(op, func(res Result) { events <- res })
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			syscall.Write(wfd, []byte{1})
			if res := <-events; res.Res&1 == 0 || !res.More() {
				t.Fatalf("event %+v", res)
			}
			syscall.Read(rfd, make([]byte, 1))
		}
		if err := r.Cancel(id); err != nil {
			t.Fatal(err)
		}
		for {
			res := <-events
			if !res.More() {
				if res.Errno() != syscall.ECANCELED {
					t.Fatalf("the end: %+v", res)
				}
				break
			}
		}
		waitFor(t, func() bool { return r.Stats().InFlight == 0 })
	})
}

func TestStatsAreJSON(t *testing.T) {
	r := open(t, Options{})
	op := &Op{}
	op.SQE.Nop()
	r.Do(op)
	var s Stats
	if err := json.Unmarshal([]byte(r.String()), &s); err != nil || s.Submitted != 1 {
		t.Errorf("%s: %v", r, err)
	}
}
