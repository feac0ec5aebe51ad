// SPDX-License-Identifier: MIT

package uring_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// TestTimeoutAbsolute waits until a time of each clock: with a timeout, with an update of a
// timeout, and with a linked timeout.
func TestTimeoutAbsolute(t *testing.T) {
	const d = 5 * time.Millisecond
	for name, clock := range map[string]struct {
		id    int32
		flags uring.TimeoutFlags
	}{
		"monotonic": {unix.CLOCK_MONOTONIC, 0},
		"boottime":  {unix.CLOCK_BOOTTIME, uring.TimeoutBoottime},
		"realtime":  {unix.CLOCK_REALTIME, uring.TimeoutRealtime},
	} {
		soon := func() *uring.Timespec {
			ts := newTimespec(readClock(t, clock.id) + d)
			keep(t, ts)
			return ts
		}
		later := func(f func(r *uring.Ring) uring.CQE) func(t *testing.T, r *uring.Ring) {
			return func(t *testing.T, r *uring.Ring) {
				start := readClock(t, clock.id)
				wantErrno(t, f(r), unix.ETIME)
				if took := readClock(t, clock.id) - start; took < d {
					t.Errorf("completed after %v instead of %v", took, d)
				}
			}
		}
		t.Run(name, func(t *testing.T) {
			ringtest.OverFlavours(t, later(func(r *uring.Ring) uring.CQE {
				return ringtest.Do(t, r, func(e *uring.SQE) { e.Timeout(soon(), 0, clock.flags|uring.TimeoutAbs) })
			}))
		})
		t.Run(name+" update", func(t *testing.T) {
			ringtest.OverFlavours(t, later(func(r *uring.Ring) uring.CQE {
				push(t, r).Timeout(anHour, 0, clock.flags).SetUserData(1)
				push(t, r).TimeoutUpdate(1, soon(), uring.TimeoutAbs).SetUserData(2)
				return byUserData(t, r, 2)[1]
			}))
		})
		t.Run(name+" link", func(t *testing.T) {
			ringtest.OverFlavours(t, later(func(r *uring.Ring) uring.CQE {
				rd, _ := osPipe(t)
				push(t, r).PollAdd(fdOf(rd), pollIn).SetFlags(uring.SQELink).SetUserData(1)
				push(t, r).LinkTimeout(soon(), clock.flags|uring.TimeoutAbs).SetUserData(2)
				return byUserData(t, r, 2)[2]
			}))
		})
	}
}

// readClock returns the time since the epoch of a clock.
func readClock(t testing.TB, id int32) time.Duration {
	t.Helper()
	var ts unix.Timespec
	if err := unix.ClockGettime(id, &ts); err != nil {
		t.Fatal(err)
	}
	return time.Duration(ts.Nano())
}
