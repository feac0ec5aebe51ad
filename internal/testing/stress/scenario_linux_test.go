// SPDX-License-Identifier: MIT

package stress

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

var (
	seedFlag        = flag.Uint64("seed", 0, "the only seed to run, in the environment that -environment names")
	environmentFlag = flag.String("environment", "", "the only environment to run: sim, broken, kernel or, with the race detector, faults")
	forFlag         = flag.Duration("for", 0, "how long each environment runs; 0: a number of operations")
	longFlag        = flag.Bool("long", false, "a million operations in all environments together, in the place of a tenth")
	fromFlag        = flag.Uint64("from", 1, "the first seed")
	fileFlag        = flag.String("scenario", "", "the file with the text of a scenario, for TestReplay")
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// environment runs scenarios.
type environment struct {
	name       string
	size       Size
	operations int64 // a million in all, and a tenth without -long
	settings   func(*rand.Rand) Settings
	run        func(t *testing.T, s *Scenario) *Report
	workers    int // how many run at the same time
}

func environments() []environment {
	sim := func(t *testing.T, s *Scenario) *Report { return runSim(t, s, injected{}) }
	side := runtime.GOMAXPROCS(0) // each simulation has its own clock, so that two do not disturb each other
	all := []environment{
		{"sim", Size{1500, 8}, 250_000, simSettings, sim, side},
		{"broken", Size{100, 8}, 190_000, brokenSettings, sim, side},
	}
	// The process has limits for descriptors and goroutines; each worker may need 17.
	if !sys.Faulty {
		return append(all, environment{"kernel", Size{300, 20}, 560_000, KernelSettings, runKernel, 1})
	}
	return append(all,
		environment{"kernel", Size{300, 20}, 420_000, KernelSettings, runKernel, 1},
		environment{"faults", Size{300, 20}, 150_000, faultsSettings, runFaults, 1})
}

// TestScenarios runs many seeds in each environment, with thousands of goroutines that use
// files, connections and watched descriptors in all ways. A scenario that fails is shrunk.
// Promise: ufile/files-hold-bytes
// Promise: unet/byte-order-right
// Promise: watch/removed-descriptor-s
func TestScenarios(t *testing.T) {
	ringtest.NeedRing(t)
	for _, w := range environments() {
		if *environmentFlag != "" && *environmentFlag != w.name {
			continue
		}
		t.Run(w.name, func(t *testing.T) { w.runSeeds(t) })
	}
}

// runSeeds runs as many seeds as there is time for.
func (w *environment) runSeeds(t *testing.T) {
	if !*longFlag {
		w.operations /= 10
	}
	if testing.Short() {
		w.size, w.operations = Size{20, 10}, w.operations/5
	}
	if w.name != "kernel" && os.Getenv(ringtest.LaneEnv) != "" {
		w.operations /= 10 // this environment simulates the kernel
	}
	if *seedFlag != 0 {
		w.runSeed(t, *seedFlag)
		return
	}
	var seeds, operations atomic.Int64
	begin := time.Now()
	enough := func() bool {
		if *forFlag > 0 {
			return time.Since(begin) > *forFlag
		}
		return operations.Load() >= w.operations
	}
	t.Run("seeds", func(t *testing.T) {
		for i := range w.workers {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for !enough() && !t.Failed() {
					operations.Add(w.runSeed(t, *fromFlag+uint64(seeds.Add(1))-1))
				}
			})
		}
	})
	t.Logf("%s: %d operations, %d seeds in %v", w.name, operations.Load(), seeds.Load(), time.Since(begin))
}

// runSeed runs one seed. Its name is printed first, because any goroutine may panic.
func (w *environment) runSeed(t *testing.T, seed uint64) int64 {
	s := Generate(w.name, seed, w.size, w.settings)
	fmt.Fprintf(os.Stderr, "%s seed %d: %s\n", w.name, seed, replay(s))
	r := w.run(t, s)
	if r.Failed() {
		t.Fail()
		fmt.Fprintf(os.Stderr, "%s seed %d: %s\n%s\nreplay: %s\n", w.name, seed, strings.Join(r.Problems, "\n"), r.Hung, replay(s))
		shrinkInChildren(t, s)
	}
	return r.Operations
}

// replay returns the command that runs a seed again.
func replay(s *Scenario) string {
	short := ""
	if testing.Short() {
		short = " -short"
	}
	return fmt.Sprintf("go test -race ./internal/testing/stress -run 'TestScenarios$'%s -environment %s -seed %d", short, s.Environment, s.Seed)
}

// TestReplay runs the scenario of a file.
func TestReplay(t *testing.T) {
	if *fileFlag == "" {
		t.Skip("needs the text of a scenario: -scenario FILE")
	}
	ringtest.NeedRing(t)
	f, err := os.Open(*fileFlag)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	s, err := Parse(f)
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range environments() {
		if w.name == s.Environment {
			if r := w.run(t, s); r.Failed() {
				t.Errorf("%s\n%s", strings.Join(r.Problems, "\n"), r.Hung)
			}
			return
		}
	}
	t.Fatalf("there is no environment %q", s.Environment)
}

func runKernel(t *testing.T, s *Scenario) *Report {
	t.Helper()
	return runKernelWith(t, s, func(w *KernelEnv) Environment { return w })
}

// runKernelWith runs a scenario in an environment that was changed.
func runKernelWith(t *testing.T, s *Scenario, change func(*KernelEnv) Environment) *Report {
	t.Helper()
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	w, err := NewKernelEnv(s, memoryDir(t))
	if err != nil {
		t.Fatal(err)
	}
	return Run(change(w), s)
}

// memoryDir returns a directory for files, in memory where possible.
func memoryDir(t testing.TB) string {
	t.Helper()
	const shm = "/dev/shm"
	if _, err := os.Stat(shm); err != nil {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shm, "scenario")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// write writes the text of a scenario into a file.
func write(t *testing.T, s *Scenario) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "scenario")
	if err := os.WriteFile(name, []byte(s.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}
