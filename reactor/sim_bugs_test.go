// SPDX-License-Identifier: MIT

package reactor

import (
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// These tests seed bugs that no kernel has, to check that the simulation finds them.

// sound is a plan without faults of the kernel.
func sound(seed uint64, bugs kernelsim.Bugs) plan {
	return plan{
		seed:    seed,
		opts:    Options{Loops: 1, Entries: 8, InFlight: 16, Logger: slog.New(slog.DiscardHandler)},
		cq:      64,
		faults:  kernelsim.Faults{Delay: 0.7},
		bugs:    bugs,
		workers: 4,
		steps:   20,
	}
}

// overSeeds runs a test with several seeds.
func overSeeds(t *testing.T, test func(t *testing.T, seed uint64)) {
	t.Helper()
	if testing.Short() {
		t.Skip("checks the simulation, not the product: not with -short")
	}
	for seed := range uint64(5) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { test(t, seed) })
	}
}

// hangs runs a plan with a goroutine that must wait for ever. Then it removes the bug,
// which must let all goroutines continue, and returns the report.
func hangs(t *testing.T, w *environment) string {
	t.Helper()
	var report string
	begin := time.Now()
	w.hung = func(r string) {
		report = r
		w.k.Mend()
	}
	w.simulate(t)
	if report == "" {
		t.Fatal("the bug was not noticed")
	}
	if d := time.Since(begin); d > time.Minute {
		t.Errorf("it took %v to find the bug", d)
	}
	if !strings.Contains(report, "goroutine ") || !strings.Contains(report, fmt.Sprintf("-seed=%d", w.seed)) {
		t.Errorf("the report lacks goroutines or the trace:\n%s", report)
	}
	return report
}

// Promise: reactor/tests-find-dropped
// Promise: tests/dropped-completion-found
func TestSeededDroppedCompletion(t *testing.T) {
	overSeeds(t, func(t *testing.T, seed uint64) {
		report := hangs(t, &environment{plan: sound(seed, kernelsim.Bugs{Drop: 1 + int(seed)*7})})
		if !strings.Contains(report, "bug: drop") {
			t.Errorf("the trace does not show it:\n%s", report)
		}
	})
}

// Promise: reactor/tests-find-dropped
// Promise: tests/lost-wake-found
func TestSeededLostWakeUp(t *testing.T) {
	overSeeds(t, func(t *testing.T, seed uint64) {
		// One goroutine waits for data; no other goroutine reaps.
		w := &environment{plan: sound(seed, kernelsim.Bugs{LoseWakes: 1})}
		w.scene = func() {
			time.AfterFunc(time.Millisecond, func() { w.k.Feed(w.wet[0], 100) })
			for range 3 {
				o := w.newOp().read(w.wet[0], make([]byte, 10), 0)
				o.ends(w.r.Do(&o.op))
			}
		}
		report := hangs(t, w)
		if !strings.Contains(report, "bug: lost wake-up") {
			t.Errorf("the trace does not show it:\n%s", report)
		}
	})
}

// TestSeededTwice posts completions twice: the first ends the operation, the second must be
// ignored.
// Promise: reactor/tests-find-dropped
func TestSeededTwice(t *testing.T) {
	overSeeds(t, func(t *testing.T, seed uint64) {
		for n := range ringtest.Rounds(20, 8) {
			counts := simulate(t, sound(seed, kernelsim.Bugs{Twice: n + 1}))
			if counts["bug: twice"] != 1 {
				t.Errorf("the completion number %d did not come twice", n)
			}
		}
	})
}

// TestSeededTouch writes to a buffer after the completion.
// Promise: reactor/tests-find-dropped
// Promise: tests/freed-buffer-found
func TestSeededTouch(t *testing.T) {
	overSeeds(t, func(t *testing.T, seed uint64) {
		w := &environment{plan: sound(seed, kernelsim.Bugs{Touch: 1 + int(seed)})}
		var mu sync.Mutex
		var wrong []string
		w.wronged = func(what string) {
			mu.Lock()
			defer mu.Unlock()
			wrong = append(wrong, what)
		}
		w.simulate(t)
		if len(wrong) != 1 || !strings.Contains(wrong[0], "after the end") {
			t.Errorf("the simulation reported %q", wrong)
		}
	})
}
