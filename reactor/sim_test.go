// SPDX-License-Identifier: MIT

package reactor

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var (
	seedsFlag = flag.Int("seeds", 0, "how many seeds the simulation tries; 0: as many as fit into a few seconds")
	seedFlag  = flag.Uint64("seed", 0, "the only seed that the simulation tries")
)

// TestSimulation lets many goroutines use a reactor over simulated rings, with simulated
// time and every fault that a kernel may produce. Each seed is one plan of options, faults,
// workers and an ending. See package kernelsim for what a seed replays. A seed that failed
// because of an interleaving may need several runs: -seed=N -count=200.
// Promise: reactor/operation-ends-exactly
func TestSimulation(t *testing.T) {
	if *seedFlag != 0 {
		simulate(t, newPlan(*seedFlag))
		return
	}
	n, most := *seedsFlag, time.Duration(1<<62)
	if n == 0 {
		n, most = ringtest.Rounds(3000, 1200), 10*time.Second
		switch {
		case os.Getenv(ringtest.LaneEnv) != "":
			n = 20 // this test simulates several kernels
		case testing.Short():
			n, most = 300, 2*time.Second
		}
	}
	begin := time.Now()
	tried := 0
	counts := make(map[string]int)
	for seed := range uint64(n) {
		if time.Since(begin) > most {
			break
		}
		for what, n := range simulate(t, newPlan(seed+1)) {
			counts[what] += n
		}
		tried++
		if t.Failed() {
			return
		}
	}
	t.Logf("%d seeds in %v: %v", tried, time.Since(begin), counts)
	for _, what := range mustHappen {
		if tried >= 1000 && counts[what] == 0 {
			t.Errorf("%s: never happened in %d seeds", what, tried)
		}
	}
}

// mustHappen are the events that a simulation of many seeds must produce.
var mustHappen = []string{
	"take", "end", "event", "exit", "lost cancel", "refuse", "partial", "fatal",
	"stale", "late", "short", "overflow", "full stream", "late wake-up", "spurious wake-up", "unparked",
	syscall.EAGAIN.Error(), syscall.ECANCELED.Error(), syscall.EIO.Error(), syscall.EINTR.Error(), syscall.ENOSPC.Error(),
	syscall.ETIME.Error(), syscall.EALREADY.Error(), syscall.ENOENT.Error(),
}

// simulate runs one plan. Simulated time finds a hang at once: when no goroutine can
// continue, it jumps to the watchdog. A second watchdog, in real time, finds endless loops.
func simulate(t *testing.T, p plan) map[string]int {
	t.Helper()
	w := &environment{plan: p}
	w.simulate(t)
	return w.k.Counts()
}

func (w *environment) simulate(t *testing.T) {
	t.Helper()
	dog := time.AfterFunc(2*time.Minute, func() {
		fmt.Fprintln(os.Stderr, w.report("the simulation is busy and does not end"))
		panic(fmt.Sprintf("seed %d", w.seed))
	})
	defer dog.Stop()
	synctest.Test(t, func(t *testing.T) {
		w.t = t
		w.run()
		if t.Failed() {
			t.Log(w.report("failed"))
		}
	})
}

// report is printed when a check fails.
func (w *environment) report(what string) string {
	stacks := make([]byte, 1<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	trace := ""
	if w.k != nil {
		trace = w.k.Trace()
	}
	return fmt.Sprintf("%s\n%v\n%s\n%s\nreplay: go test -race ./reactor -run 'TestSimulation$' -seed=%d\n", what, w.plan, trace, stacks, w.seed)
}

// simOpener opens simulated rings.
func simOpener(k *kernelsim.Kernel, cq int) opener {
	return func(o *Options, _ ring) (ring, parker, error) {
		r := k.Open(kernelsim.RingOptions{Entries: o.Entries, CQEntries: max(cq, o.Entries)})
		return r, r.Parker(), nil
	}
}
