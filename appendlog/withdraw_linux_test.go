// SPDX-License-Identifier: MIT

package appendlog

import (
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// threadTime returns the processor time of the thread.
func threadTime(t *testing.T) time.Duration {
	t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &now); err != nil {
		t.Fatal(err)
	}
	return time.Duration(now.Nano())
}

// TestWithdrawIsLinear compares the processor time of withdrawing half of the calls of a group and of
// serving the others, for two sizes: 16 times the calls may take 16 times the time, not 256 times.
func TestWithdrawIsLinear(t *testing.T) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	least := func(calls int) time.Duration {
		best := time.Hour
		for range 7 {
			g, spans := group{calls: calls, pos: Position{1, segmentHeaderSize, 1}}, make([]span, calls)
			for i := range spans {
				spans[i] = g.add([][]byte{{byte(i)}}, []uint32{0}, recordSize(1))
			}
			out := make([]byte, 0, len(g.buf))
			start := threadTime(t)
			for i := 1; i < calls; i += 2 {
				g.withdraw(spans[i])
			}
			_, n := g.encode(out, 0, segmentHeaderSize)
			var last Position
			for i := 0; i < calls; i += 2 {
				last = g.position(spans[i])
			}
			best = min(best, threadTime(t)-start)
			if n != uint64(calls/2) || last != (Position{1, segmentHeaderSize + int64(n-1)*recordSize(1), n}) {
				t.Fatalf("%d records, the last one at %+v", n, last)
			}
		}
		return best
	}
	const calls, times = 1000, 16
	few, many := least(calls), least(times*calls)
	t.Logf("%d calls: %v; %d calls: %v", calls, few, times*calls, many)
	if many > 4*times*few {
		t.Errorf("%d times the calls take %d times the time", times, many/few)
	}
}
