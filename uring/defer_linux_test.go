// SPDX-License-Identifier: MIT

package uring_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestDeferCQHead posts completions to rings whose CQ has few slots besides the deferred
// ones: all must arrive, once and in order, and none early.
func TestDeferCQHead(t *testing.T) {
	for name, o := range map[string]uring.Options{
		"default": {}, "defer": {DeferTaskrun: true}, "cqe32": {CQE32: true}, "mixed": {CQEMixed: true},
	} {
		for _, hold := range []int{1, 3, 4, 100, -1} {
			t.Run(fmt.Sprintf("%s/%d", name, hold), func(t *testing.T) {
				switch {
				case o.CQEMixed:
					ringtest.NeedKernel(t, "mixed completions", "6.18")
				case o.DeferTaskrun:
					ringtest.NeedKernel(t, "deferred task work", "6.1")
				case o.CQE32:
					ringtest.NeedKernel(t, "32-byte completions", "5.19")
				}
				o.Entries, o.CQEntries = 4, 8
				deferWhileReaping(t, ctlRing(t, o), hold)
			})
		}
	}
}

func deferWhileReaping(t *testing.T, r *uring.Ring, hold int) {
	t.Helper()
	r.DeferCQHead(hold)
	most := max(min(hold, 4), 0) // half of the CQ
	sent, got := uint64(0), uint64(0)
	for round := range 30 {
		n := 1 + round%3
		for range n {
			ctlNext(t, r).Nop().SetUserData(sent)
			sent++
		}
		if _, err := r.SubmitAndWait(n); err != nil || r.Ready() != n {
			t.Fatalf("round %d: %d of %d completions, %v", round, r.Ready(), n, err)
		}
		var c [8]uring.CQE
		if r.Reap(c[:]) != n {
			t.Fatalf("round %d: completions are left after Reap", round)
		}
		for i := range n {
			if c[i].UserData != got {
				t.Fatalf("round %d: completion %d, want %d", round, c[i].UserData, got)
			}
			got++
		}
		if want := min(int(got), most); r.DeferredCQHead() != want {
			t.Fatalf("round %d: %d slots are deferred, want %d", round, r.DeferredCQHead(), want)
		}
	}
	if _, err := r.Wait(uring.WaitOptions{Brief: true}); err != nil || r.Ready() != 0 {
		t.Errorf("got %d completions that were not submitted, %v", r.Ready(), err)
	}
	const d = 20 * time.Millisecond
	atLeast(t, d, func() time.Duration { return ctlTook(t, r, uring.WaitOptions{Count: 1, Timeout: d}) })
	r.DeferCQHead(0)
	if r.DeferredCQHead() != 0 {
		t.Errorf("%d slots are deferred at the end, want 0", r.DeferredCQHead())
	}
	ctlNops(t, r, 1, 12)
}

// TestDeferCQHeadOverflow posts more completions than there are free slots.
func TestDeferCQHeadOverflow(t *testing.T) {
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 8})
	r.DeferCQHead(4)
	ctlNops(t, r, 1, 8)
	for i := range uint64(20) {
		ctlNext(t, r).Nop().SetUserData(i)
		ctlSubmit(t, r, 1)
	}
	for i, c := range ringtest.Await(t, r, 20) {
		if c.UserData != uint64(i) {
			t.Fatalf("got completion %d at position %d", c.UserData, i)
		}
	}
}

// TestDeferCQHeadResize checks that resizing keeps the waiting completions.
func TestDeferCQHeadResize(t *testing.T) {
	ringtest.NeedKernel(t, "RESIZE_RINGS", "6.13")
	r := ctlRing(t, uring.Options{Entries: 4, CQEntries: 8, DeferTaskrun: true})
	r.DeferCQHead(4)
	ctlNops(t, r, 1, 8)
	for i := range uint64(3) {
		ctlNext(t, r).Nop().SetUserData(i)
	}
	ctlSubmit(t, r, 3)
	ctlOK(t, "resize", r.Resize(4, 16))
	if r.DeferredCQHead() != 0 {
		t.Errorf("%d slots are deferred before the resize", r.DeferredCQHead())
	}
	for i, c := range ringtest.Await(t, r, 3) {
		if c.UserData != uint64(i) {
			t.Fatalf("got completion %d at position %d", c.UserData, i)
		}
	}
	ctlNops(t, r, 1, 20)
	if r.DeferredCQHead() != 4 {
		t.Errorf("%d slots are deferred after the resize", r.DeferredCQHead())
	}
	ctlOK(t, "resize", r.Resize(4, 4)) // as many slots as may be deferred so far
	ctlNops(t, r, 1, 20)
	if r.DeferredCQHead() != 2 {
		t.Errorf("%d slots of 4 are deferred", r.DeferredCQHead())
	}
}

// TestDeferCQHeadTaskWork checks that one enter runs all deferred task work. Without
// deferred slots an enter runs at most 20 items on kernels since 6.13.
func TestDeferCQHeadTaskWork(t *testing.T) {
	ringtest.NeedKernel(t, "deferred task work", "6.1")
	const polls = 100
	r := ctlRing(t, uring.Options{Entries: polls, CQEntries: 4 * polls, DeferTaskrun: true})
	r.DeferCQHead(polls)
	ctlNops(t, r, 1, polls)
	var events []*sys.FD
	for i := range uint64(polls) {
		events = append(events, openEventFD(t))
		ctlNext(t, r).PollAdd(on(events[i]), 1).SetUserData(i)
	}
	ctlSubmit(t, r, polls)
	for _, e := range events {
		post(t, e)
	}
	if _, err := r.Wait(uring.WaitOptions{Brief: true}); err != nil || r.Ready() != polls {
		t.Errorf("one enter brought %d of %d completions, %v", r.Ready(), polls, err)
	}
	ringtest.Await(t, r, polls)
}
