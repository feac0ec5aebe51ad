// SPDX-License-Identifier: MIT

package reactor

import (
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestClosedRingsAreWaitedFor simulates a kernel that frees the memory of a ring some time
// after its close, which lastClose records.
func TestClosedRingsAreWaitedFor(t *testing.T) {
	was := lastClose.Load()
	t.Cleanup(func() { lastClose.Store(was) })
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
	lastClose.Store(time.Now().Add(ringtest.Patience).UnixNano()) // the time must not run out in this part
	if l, err := retryOpen(open(4)); l == nil || err != nil || tries != 4 {
		t.Errorf("after %d tries: %v", tries, err)
	}
	lastClose.Store(time.Now().Add(-2 * unlockTime).UnixNano())
	if _, err := retryOpen(open(4)); err != syscall.ENOMEM || tries != 1 {
		t.Errorf("without closed rings, after %d tries: %v", tries, err)
	}
}

// TestCloseRecordsItsTime checks that closing a ring records the time that retryOpen uses.
func TestCloseRecordsItsTime(t *testing.T) {
	ringtest.NeedRing(t)
	start := time.Now().UnixNano()
	r, err := New(Options{Loops: 1})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if lastClose.Load() < start {
		t.Error("Close did not record its time")
	}
}
