// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/probe"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// ctlTook measures the duration of a wait that must not fail.
func ctlTook(t *testing.T, r *uring.Ring, o uring.WaitOptions) time.Duration {
	t.Helper()
	start := time.Now()
	if n, err := r.Wait(o); n != 0 || err != nil {
		t.Fatalf("wait %+v: %d, %v", o, n, err)
	}
	return time.Since(start)
}

// atLeast repeats a wait, which a signal of the runtime may cut short, until it has lasted
// for d.
func atLeast(t *testing.T, d time.Duration, wait func() time.Duration) {
	t.Helper()
	ctlUntil(t, "a wait that is not interrupted", func() bool { return wait() >= d })
}

func TestWaitTimeout(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		const d = 15 * time.Millisecond
		atLeast(t, d, func() time.Duration { return ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: d}) })
		for _, over := range []time.Duration{1, -1, -time.Hour} {
			if took := ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: over}); took > ringtest.Patience {
				t.Errorf("a timeout of %v took %v", over, took)
			}
		}
		if n, err := r.SubmitAndWaitTimeout(1, 0); n != 0 || err != nil {
			t.Errorf("no time at all: %d, %v", n, err)
		}
		// Entries that the same call submitted are counted although the time runs out.
		ctlNext(t, r).Nop().SetUserData(1)
		if n, err := r.SubmitAndWaitTimeout(2, time.Millisecond); n != 1 || err != nil {
			t.Errorf("submit and wait: %d, %v", n, err)
		}
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != 1 {
			t.Errorf("completion %+v", c)
		}
		// Completions that are already there end a wait at once.
		ctlNext(t, r).Nop()
		ctlNext(t, r).Nop()
		if n, err := r.SubmitAndWaitTimeout(2, time.Hour); n != 2 || err != nil {
			t.Errorf("submit and wait: %d, %v", n, err)
		}
		ringtest.Await(t, r, 2)
	})
}

// TestWaitCount waits for more completions than are there already.
func TestWaitCount(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, wr := ctlPipe(t)
		ctlNext(t, r).Nop()
		ctlNext(t, r).PollAdd(uring.Fd(rd), 1)
		ctlSubmit(t, r, 2)
		go ctlWrite(t, wr, []byte{1})
		ctlUntil(t, "a wait for two completions", func() bool {
			_, err := r.Wait(uring.WaitOptions{Count: 2})
			ctlOK(t, "wait", err)
			return r.Ready() == 2 // fewer after a signal of the runtime
		})
		ringtest.Await(t, r, 2)
	})
}

// TestWaitInterrupted sends a signal to the waiting thread.
// Promise: uring/completion-lost-seen
func TestWaitInterrupted(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		tid := ctlThreadID()
		for _, o := range []uring.WaitOptions{{Count: 1}, {Count: 1, Timeout: time.Hour}} {
			stop := ctlHarass(t, tid)
			ctlTook(t, r, o) // only a signal ends this wait
			if stop() == 0 {
				t.Error("the wait ended without a signal")
			}
		}
		// An interrupted wait returns how many entries it submitted.
		stop := ctlHarass(t, tid)
		ctlNext(t, r).Nop()
		n, err := r.Wait(uring.WaitOptions{Count: 2})
		stop()
		if n != 1 || err != nil {
			t.Errorf("submit and wait: %d, %v", n, err)
		}
		ringtest.Await(t, r, 1)
	})
}

// TestWaitMin has one completion early and wants more: the wait must end when the minimum
// time is over, long before the timeout.
func TestWaitMin(t *testing.T) {
	r := ctlRing(t, uring.Options{DeferTaskrun: ctlHasKernel(t, "6.1")})
	if r.Features()&uring.FeatMinTimeout == 0 {
		if ctlHasKernel(t, "6.12") {
			t.Error("no FeatMinTimeout")
		}
		_, err := r.Wait(uring.WaitOptions{Count: 2, MinWait: time.Millisecond})
		if !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a minimum wait: %v, want ErrUnsupported", err)
		}
		return
	}
	const least = 30 * time.Millisecond
	rd, wr := ctlPipe(t)
	atLeast(t, least, func() time.Duration {
		ctlNext(t, r).PollAdd(uring.Fd(rd), 1)
		ctlSubmit(t, r, 1)
		ctlWrite(t, wr, []byte{1})
		start := time.Now()
		_, err := r.Wait(uring.WaitOptions{Count: 8, MinWait: least, Timeout: time.Hour})
		took := time.Since(start)
		ctlOK(t, "wait", err)
		ringtest.Await(t, r, 1)
		return took
	})
	// Without any completion the timeout counts, or the minimum if there is no timeout.
	atLeast(t, 2*least, func() time.Duration {
		return ctlTook(t, r, uring.WaitOptions{Count: 2, MinWait: time.Microsecond, Timeout: 2 * least})
	})
	atLeast(t, least, func() time.Duration {
		return ctlTook(t, r, uring.WaitOptions{Count: 2, MinWait: least})
	})
}

// ctlHasKernel reports whether the running kernel is not older than since.
func ctlHasKernel(t *testing.T, since string) bool {
	t.Helper()
	ringtest.NeedRing(t)
	want, err := probe.ParseVersion(since)
	ctlOK(t, "version", err)
	have, err := probe.Kernel()
	ctlOK(t, "version", err)
	return !have.Less(want)
}

func TestNoIOWait(t *testing.T) {
	r := ctlRing(t, uring.Options{NoIOWait: true})
	if r.Features()&uring.FeatNoIOWait == 0 {
		ringtest.NeedKernel(t, "NO_IOWAIT", "6.15")
		t.Fatal("no FeatNoIOWait")
	}
	ctlNops(t, r, 1, 300)
	atLeast(t, time.Millisecond, func() time.Duration {
		return ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: time.Millisecond})
	})
}
