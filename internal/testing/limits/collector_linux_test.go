// SPDX-License-Identifier: MIT

package limits

import (
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// TestCollector runs the garbage collector continually, with a memory limit below the
// program's need, while operations of all kinds are in flight.
func TestCollector(t *testing.T) {
	if testing.Short() {
		t.Skip("one limit is enough with -short")
	}
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	ringtest.NeedRing(t)
	if !inChild(t, nil, "GOGC=1", "GOMEMLIMIT=8MiB") {
		return
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	defer collecting()()
	operations, _ := run(t, directory(t), ringtest.Rounds(6, 3), ringtest.Rounds(40, 20), func(*environment) {})
	runtime.ReadMemStats(&after)
	cycles := after.NumGC - before.NumGC
	t.Logf("%d collections during %d operations", cycles, operations)
	if cycles < 20 {
		t.Errorf("the collector ran %d times", cycles)
	}
}

// collecting runs the collector and shrinks stacks until the function that it returns is
// called.
func collecting() func() {
	var stop atomic.Bool
	var ended sync.WaitGroup
	ended.Go(func() {
		for !stop.Load() {
			runtime.GC()
		}
	})
	return func() { stop.Store(true); ended.Wait() }
}

// TestMemoryGroup limits the memory of a process, including file cache and socket buffers,
// to less than it uses.
func TestMemoryGroup(t *testing.T) {
	if testing.Short() && os.Getenv(ringtest.LaneEnv) == "" {
		t.Skip("one limit is enough with -short, except where the machine is the test's own")
	}
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	ringtest.NeedRing(t)
	const limit = 64 << 20 * raceCost
	if !ringtest.IsChild(t) {
		g := newGroup(t, limit)
		inChild(t, g.attr(), "GOMEMLIMIT=16MiB")
		if g.reached(t) == 0 {
			t.Error("the process never reached the limit")
		}
		return
	}
	dir := directory(t)
	run(t, dir, ringtest.Rounds(4, 1), ringtest.Rounds(40, 20), func(w *environment) {
		w.ending = func(w *environment) { w.fill(dir, limit*3/2) }
	})
}

// number returns the value of a name in lines of names and values.
func number(lines, name string) string {
	for line := range strings.Lines(lines) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			return f[1]
		}
	}
	return ""
}
