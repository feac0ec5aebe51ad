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
	seedFlag  = flag.Uint64("seed", 0, "the only seed that is played, in the world that -world names")
	worldFlag = flag.String("world", "", "the only world that is played in: sim, broken, kernel or, with the race detector, faults")
	forFlag   = flag.Duration("for", 0, "how long each world is played in; 0: for as many operations as CI has time for")
	fromFlag  = flag.Uint64("from", 1, "the first of the seeds that are played")
	fileFlag  = flag.String("scenario", "", "a file with the text of a scenario, for TestReplay")
)

func TestMain(m *testing.M) { os.Exit(ringtest.Main(m)) }

// world is where scenarios are played.
type world struct {
	name       string
	size       Size
	operations int64 // a million in all
	settings   func(*rand.Rand) Settings
	play       func(t *testing.T, s *Scenario) *Report
	workers    int // how many are played side by side
}

func worlds() []world {
	sim := func(t *testing.T, s *Scenario) *Report { return playSim(t, s, plant{}) }
	side := runtime.GOMAXPROCS(0) // the clock of a simulation is its own, so that two do not disturb each other
	all := []world{
		{"sim", Size{1500, 8}, 250_000, simSettings, sim, side},
		{"broken", Size{100, 8}, 190_000, brokenSettings, sim, side},
	}
	// Descriptors and goroutines of the process are counted; each actor may have 17.
	if !sys.Faulty {
		return append(all, world{"kernel", Size{300, 20}, 560_000, KernelSettings, playKernel, 1})
	}
	return append(all,
		world{"kernel", Size{300, 20}, 420_000, KernelSettings, playKernel, 1},
		world{"faults", Size{300, 20}, 150_000, faultsSettings, playFaults, 1})
}

// TestScenarios plays seed after seed in each world, with thousands of
// goroutines that do everything that can be done to files, connections and
// watched descriptors. What fails is shrunk.
func TestScenarios(t *testing.T) {
	ringtest.NeedRing(t)
	for _, w := range worlds() {
		if *worldFlag != "" && *worldFlag != w.name {
			continue
		}
		t.Run(w.name, func(t *testing.T) { w.playSeeds(t) })
	}
}

// playSeeds plays as many seeds as there is time for.
func (w *world) playSeeds(t *testing.T) {
	if testing.Short() {
		w.size, w.operations = Size{20, 10}, w.operations/50
	}
	if w.name != "kernel" && os.Getenv(ringtest.LaneEnv) != "" {
		w.operations /= 10 // kernels are simulated here
	}
	if *seedFlag != 0 {
		w.playSeed(t, *seedFlag)
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
					operations.Add(w.playSeed(t, *fromFlag+uint64(seeds.Add(1))-1))
				}
			})
		}
	})
	t.Logf("%s: %d operations, %d seeds in %v", w.name, operations.Load(), seeds.Load(), time.Since(begin))
}

// playSeed plays one seed. Its name is printed first, because what goes wrong
// may be a panic of any goroutine.
func (w *world) playSeed(t *testing.T, seed uint64) int64 {
	s := Generate(w.name, seed, w.size, w.settings)
	fmt.Fprintf(os.Stderr, "%s seed %d: %s\n", w.name, seed, replay(s))
	r := w.play(t, s)
	if r.Failed() {
		t.Fail()
		fmt.Fprintf(os.Stderr, "%s seed %d: %s\n%s\nreplay: %s\n", w.name, seed, strings.Join(r.Problems, "\n"), r.Hung, replay(s))
		shrinkInChildren(t, s)
	}
	return r.Operations
}

// replay returns the command that plays a seed again.
func replay(s *Scenario) string {
	short := ""
	if testing.Short() {
		short = " -short"
	}
	return fmt.Sprintf("go test -race ./internal/testing/stress -run 'TestScenarios$'%s -world %s -seed %d", short, s.World, s.Seed)
}

// TestReplay plays the scenario of a file.
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
	for _, w := range worlds() {
		if w.name == s.World {
			if r := w.play(t, s); r.Failed() {
				t.Errorf("%s\n%s", strings.Join(r.Problems, "\n"), r.Hung)
			}
			return
		}
	}
	t.Fatalf("there is no world %q", s.World)
}

func playKernel(t *testing.T, s *Scenario) *Report {
	t.Helper()
	return playKernelWith(t, s, func(w *KernelWorld) World { return w })
}

// playKernelWith plays a scenario in a world that was changed.
func playKernelWith(t *testing.T, s *Scenario, change func(*KernelWorld) World) *Report {
	t.Helper()
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	w, err := NewKernelWorld(s, memoryDir(t))
	if err != nil {
		t.Fatal(err)
	}
	return Play(change(w), s)
}

// memoryDir returns a directory for files, in memory where there is one.
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
