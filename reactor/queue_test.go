// SPDX-License-Identifier: MIT

//go:build linux

package reactor

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
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

func TestDeadlineEndsAnOperation(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		rfd, _ := pipe(t)
		got := make(chan Result, 1)
		begin := time.Now()
		if _, err := r.QueueWithDeadline(readOp(rfd, make([]byte, 1), 0), begin.Add(20*time.Millisecond), func(res Result) { got <- res }); err != nil {
			t.Fatal(err)
		}
		if res := <-got; !errors.Is(res.Cause, os.ErrDeadlineExceeded) {
			t.Fatalf("%+v", res)
		}
		if d := time.Since(begin); d < 20*time.Millisecond {
			t.Errorf("the deadline came after %v", d)
		}
		if _, err := r.QueueWithDeadline(readOp(rfd, make([]byte, 1), 0), begin, func(res Result) { got <- res }); err != nil {
			t.Fatal(err)
		}
		if res := <-got; !errors.Is(res.Cause, os.ErrDeadlineExceeded) {
			t.Fatalf("a deadline that has passed: %+v", res)
		}
		op := &Op{}
		op.SQE.Nop()
		if _, err := r.QueueWithDeadline(op, begin.Add(time.Hour), func(res Result) { got <- res }); err != nil {
			t.Fatal(err)
		}
		if res := <-got; res.Cause != nil || res.Res != 0 {
			t.Fatalf("an operation in time: %+v", res)
		}
	})
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
			t.Fatalf("cancel of what is over: %v", err)
		}
		if err := r.Cancel(ID{}); !errors.Is(err, ErrNotFound) {
			t.Fatalf("cancel of nothing: %v", err)
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
			t.Fatalf("with a context that is done: %+v", res)
		}
		// What the cancelled read did not take is there for the next one.
		syscall.Write(wfd, []byte{7})
		p := make([]byte, 1)
		if res := r.DoContext(context.Background(), readOp(rfd, p, 0)); res.Res != 1 || p[0] != 7 {
			t.Fatalf("%+v, %v", res, p)
		}
		over(t, r)
	})
}

// TestEachOperationEndsOnce lets deadlines, cancellations and data race.
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
					t.Error("called twice")
				}
				switch {
				case res.Res == 1:
					data.Add(1)
				case errors.Is(res.Cause, os.ErrDeadlineExceeded), res.Errno() == syscall.ECANCELED && res.Cause == nil:
				default:
					t.Errorf("%+v", res)
				}
				ended.Add(1)
				wg.Done()
			}
			var id ID
			var err error
			for {
				id, err = r.QueueWithDeadline(readOp(rfd, make([]byte, 1), 0), time.Now().Add(time.Duration(rng.IntN(2_000_000))), fn)
				if !errors.Is(err, ErrFull) {
					break
				}
			}
			if err != nil {
				t.Fatal(err)
			}
			switch rng.IntN(3) {
			case 0:
				_ = r.Cancel(id)
			case 1:
				syscall.Write(wfd, []byte{1})
			}
		}
		wg.Wait()
		if ended.Load() != n {
			t.Errorf("%d of %d ended", ended.Load(), n)
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

func TestBatchAndChain(t *testing.T) {
	overKinds(t, func(t *testing.T, r *Reactor) {
		f, want := pattern(t, 1<<16)
		const n = 100
		ops, results := make([]Op, n), make([]Result, n)
		for i := range ops {
			ops[i] = *readOp(int(f.Fd()), make([]byte, 512), int64(i*512))
		}
		for range 3 {
			clear(results)
			if err := r.DoBatch(ops, results); err != nil {
				t.Fatal(err)
			}
			for i, res := range results {
				if res.Res != 512 || string(ops[i].Buf) != string(want[i*512:(i+1)*512]) {
					t.Fatalf("operation %d: %+v", i, res)
				}
			}
		}
		// The second link reads beyond the end: short, so the third is cancelled.
		chain := []Op{*readOp(int(f.Fd()), make([]byte, 8), 0), *readOp(int(f.Fd()), make([]byte, 8), 1<<16), *readOp(int(f.Fd()), make([]byte, 8), 0)}
		if err := r.DoChain(chain, results[:3]); err != nil {
			t.Fatal(err)
		}
		if results[0].Res != 8 || results[1].Res != 0 || results[2].Errno() != syscall.ECANCELED {
			t.Fatalf("chain: %+v", results[:3])
		}
		if err := r.DoChain(make([]Op, 1<<16), make([]Result, 1<<16)); !errors.Is(err, errChainTooLong) {
			t.Fatalf("endless chain: %v", err)
		}
		if err := r.DoBatch(ops, results[:1]); !errors.Is(err, errResults) {
			t.Fatalf("too few results: %v", err)
		}
		over(t, r)
	})
}

func TestBatchDoesNotAllocate(t *testing.T) {
	for _, o := range []Options{{Loops: 1}, {Loops: 1, Pinned: true}} {
		r := open(t, o)
		f, _ := pattern(t, 1<<16)
		ops, results := make([]Op, 32), make([]Result, 32)
		for i := range ops {
			ops[i] = *readOp(int(f.Fd()), make([]byte, 512), int64(i*512))
		}
		if n := ringtest.Allocations(200, func() {
			if err := r.DoBatch(ops, results); err != nil {
				t.Fatal(err)
			}
		}); n >= 1 && !raceEnabled {
			t.Errorf("%+v: %v allocations per batch", o, n)
		}
	}
}

func TestStatsAreJSON(t *testing.T) {
	r := open(t, Options{})
	op := &Op{}
	op.SQE.Nop()
	r.Do(op)
	var s Stats
	if err := json.Unmarshal([]byte(r.String()), &s); err != nil || s.Submitted != 1 || s.BatchSize() != 1 {
		t.Errorf("%s: %v", r, err)
	}
}

// TestChainsStayWholeWithSQPoll has several rings share the kernel's thread,
// which takes only some entries of each at a time.
func TestChainsStayWholeWithSQPoll(t *testing.T) {
	r := open(t, Options{Loops: 2, SQPoll: true})
	f, _ := pattern(t, 0)
	var others sync.WaitGroup
	defer others.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for range 2 {
		others.Go(func() {
			op := &Op{}
			op.SQE.Nop()
			for {
				select {
				case <-stop:
					return
				default:
					r.Do(op)
				}
			}
		})
	}
	for range ringtest.Rounds(200, 50) {
		ops, results := make([]Op, sqpollShare), make([]Result, sqpollShare)
		for i := range ops {
			ops[i].SQE.Nop()
		}
		ops[0] = *readOp(int(f.Fd()), make([]byte, 8), 0) // short: the file is empty
		if err := r.DoChain(ops, results); err != nil {
			t.Fatal(err)
		}
		for _, res := range results[1:] {
			if res.Errno() != syscall.ECANCELED {
				t.Fatalf("a chain was split: %+v", results)
			}
		}
	}
	if err := r.DoChain(make([]Op, sqpollShare+1), make([]Result, sqpollShare+1)); !errors.Is(err, errChainSQPoll) {
		t.Errorf("a longer chain: %v", err)
	}
}
