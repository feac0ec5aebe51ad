// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestFailedRingOfTheKernelThatOverflows replaces the descriptor of a ring whose
// completions have overflowed: no operation may wait for ever.
// Promise: reactor/ring-fails-ends
func TestFailedRingOfTheKernelThatOverflows(t *testing.T) {
	ringtest.NeedKernel(t, "CQ overflow beside submissions", "5.19")
	const size, many = 8, 20
	var shut atomic.Bool
	var inner kernelRing
	r, err := New(Options{Loops: 1, Entries: size, InFlight: many + 1, Logger: slog.New(slog.DiscardHandler), open: func(o *Options, _ ring) (ring, parker, error) {
		small := *o
		small.InFlight = size // the size of the completion queue
		r, p, err := openKernelRing(&small, nil)
		if err != nil {
			return nil, nil, err
		}
		inner = r.(kernelRing)
		return gatedRing{inner, &shut}, p, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	nop := new(Op)
	nop.SQE.Nop()
	results := make(chan Result, many)
	shut.Store(true)
	for range many {
		if _, err := r.Queue(nop, func(res Result) { results <- res }); err != nil {
			t.Fatal(err)
		}
	}
	for end := time.Now().Add(ringtest.Patience); inner.SQFlags()&uring.SQCQOverflow == 0 || r.Stats().Submitted < many; {
		if time.Now().After(end) {
			t.Fatal("the completions do not overflow")
		}
		time.Sleep(time.Millisecond)
	}
	closeAt(t, inner.FD())
	shut.Store(false)
	if res := r.Do(nop); !errors.Is(res.Cause, ErrFailed) || errors.Is(res.Cause, ErrTaken) {
		t.Errorf("an operation that the ring has not taken: %+v", res)
	}
	done := 0
	for range many {
		select {
		case res := <-results:
			switch {
			case res.Cause == nil && res.Res == 0:
				done++
			case !errors.Is(res.Cause, ErrFailed) || !errors.Is(res.Cause, ErrTaken):
				t.Errorf("an operation that the ring has taken: %+v", res)
			}
		case <-time.After(ringtest.Patience):
			t.Fatal("an operation does not end")
		}
	}
	if done != size {
		t.Errorf("%d operations have a result, of which the queue had %d", done, size)
	}
	if err := r.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
}
