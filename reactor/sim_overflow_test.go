// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/ringside-io/ringside/internal/ringloop"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// gatedRing posts no completions while it is shut.
type gatedRing struct {
	ring
	shut *atomic.Bool
}

func (r gatedRing) Reap(dst []uring.CQE) int {
	if r.shut.Load() {
		return 0
	}
	return r.ring.Reap(dst)
}

// TestFailedRingThatOverflows makes completions overflow before or after their ring fails:
// no io_uring_enter can move them into the CQ, and yet all operations must end.
// Promise: reactor/ring-fails-ends
func TestFailedRingThatOverflows(t *testing.T) {
	for _, before := range []bool{true, false} {
		t.Run(fmt.Sprintf("before=%v", before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testOverflowOfFailed(t, before) })
		})
	}
}

func testOverflowOfFailed(t *testing.T, before bool) {
	const size, many = 4, 10
	var broken, shut atomic.Bool
	k := kernelsim.New(kernelsim.Options{Seed: 1, Plan: kernelsim.Plan{Submit: func(n int) (int, bool, syscall.Errno) {
		if broken.Load() {
			return 0, false, syscall.EBADF
		}
		return n, false, 0
	}}})
	defer k.Close()
	inner := simOpener(k, size)
	r, err := New(Options{Loops: 1, Entries: size, Logger: slog.New(slog.DiscardHandler), open: func(o *Options, first ring) (ring, parker, error) {
		r, p, err := inner(o, first)
		return gatedRing{r, &shut}, p, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	pipe := k.Pipe()
	results := make(chan Result, many)
	for range many {
		if _, err := r.Queue(simRead(pipe, make([]byte, 1)), func(res Result) { results <- res }); err != nil {
			t.Fatal(err)
		}
	}
	fail := func() {
		broken.Store(true)
		if res := r.Do(simRead(pipe, make([]byte, 1))); !errors.Is(res.Cause, ErrFailed) || errors.Is(res.Cause, ErrTaken) {
			t.Errorf("an operation that the ring has not taken: %+v", res)
		}
	}
	if !before {
		fail()
	}
	synctest.Wait() // a Reap that has begun would still take completions
	shut.Store(true)
	k.Feed(pipe, many-1)
	synctest.Wait() // all but one have ended
	shut.Store(false)
	if before {
		fail()
	} else {
		k.Feed(pipe, 1)
	}
	read := 0
	for range many {
		switch res := <-results; {
		case res.Cause == nil && res.Res == 1:
			read++
		case !errors.Is(res.Cause, ErrFailed) || !errors.Is(res.Cause, ErrTaken):
			t.Errorf("an operation that the ring has taken: %+v", res)
		}
	}
	if read != size {
		t.Errorf("%d reads have a result, of which the queue had %d", read, size)
	}
	if !ringloop.Leaked(r.loops[0]) {
		t.Error("memory that the kernel has is freed before Close")
	}
	if err := r.Close(); !errors.Is(err, ErrFailed) {
		t.Errorf("close: %v", err)
	}
}
