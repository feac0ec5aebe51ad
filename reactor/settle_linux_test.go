// SPDX-License-Identifier: MIT

package reactor

import (
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestClosedRingsAreWaitedFor has a kernel that gives the memory of a ring back
// some time after that was closed.
func TestClosedRingsAreWaitedFor(t *testing.T) {
	was := closed.Load()
	t.Cleanup(func() { closed.Store(was) })
	tries := 0
	open := func(enough int) func() (*loop, error) {
		tries = 0
		return func() (*loop, error) {
			if tries++; tries < enough {
				return nil, syscall.ENOMEM
			}
			return &loop{}, nil
		}
	}
	closed.Store(time.Now().Add(ringtest.Patience).UnixNano()) // the time is not what is tested
	if l, err := settle(open(4)); l == nil || err != nil || tries != 4 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	closed.Store(time.Now().Add(-2 * drain).UnixNano())
	if _, err := settle(open(4)); err != syscall.ENOMEM || tries != 1 {
		t.Errorf("without closed rings, after %d tries: %v", tries, err)
	}
}

// TestCloseTakesNote closes rings, which settle must know of.
func TestCloseTakesNote(t *testing.T) {
	for _, pinned := range []bool{false, true} {
		if pinned {
			ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
		}
		ringtest.NeedRing(t)
		start := time.Now().UnixNano()
		r, err := New(Options{Loops: 1, Pinned: pinned})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if closed.Load() < start {
			t.Errorf("pinned %v: nobody takes note of closed rings", pinned)
		}
	}
}
