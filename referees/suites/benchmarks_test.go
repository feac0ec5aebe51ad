// SPDX-License-Identifier: MIT

//go:build linux

package suites

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/overlay"
)

// changes are what the builds of the benchmarks differ by: the first is go test's, the second what "ringside
// test" makes, the third that with --files --sockets.
var changes = []overlay.Options{{}, {Files: true}, {Files: true, Sockets: true}}

const (
	// benchTime is how long a benchmark runs, about.
	benchTime = 40 * time.Millisecond
	// rounds is how often each build runs a benchmark, and moreRounds how often one that may be a loss.
	rounds, moreRounds = 6, 20
	// benchLeast is the least ratio of the rates that is no loss.
	benchLeast = 0.95
)

// TestGoBenchmarks runs the benchmarks of os, net and net/http as go test builds them and with the overlay, in
// turn. A loss is a rate below benchLeast of go test's whose interval excludes 1. Each loss must stand in the
// table of results/notes/unchanged.md.
func TestGoBenchmarks(t *testing.T) {
	if os.Getenv("RINGSIDE_REFEREES") != "bench" {
		t.Skip("takes ten minutes: needs RINGSIDE_REFEREES=bench, as make std-bench sets it")
	}
	known := knownLosses(t)
	for _, pkg := range []string{"os", "net", "net/http"} {
		t.Run(path.Base(pkg), func(t *testing.T) {
			b := newStdBench(t, pkg)
			for _, name := range b.names(t) {
				t.Run(strings.TrimPrefix(name, "Benchmark"), func(t *testing.T) {
					c := comparison{}
					c.add(t, b, name, rounds)
					if c.mayLose() {
						c.add(t, b, name, moreRounds)
					}
					c.report(t, pkg, known)
				})
			}
		})
	}
}

// stdBench is the benchmarks of a package in three builds.
type stdBench struct {
	dir, forbid string
	exes        []string
}

func newStdBench(t *testing.T, pkg string) *stdBench {
	w := newWorkshop(t, suite{name: pkg})
	forbid, err := forbid()
	if err != nil {
		t.Fatal(err)
	}
	b := &stdBench{dir: filepath.Join(w.dir, pkg), forbid: forbid}
	for i, o := range changes {
		exe := filepath.Join(scratch, fmt.Sprintf("bench%d_%s.test", i, strings.ReplaceAll(pkg, "/", "_")))
		args := []string{"-c", "-o", exe, "."}
		build := exec.Command("go", append([]string{"test", "-vet=off"}, args...)...)
		if i > 0 {
			if build, err = w.tools.Command(filepath.Join(scratch, "overlay"), o, "test", args); err != nil {
				t.Fatal(err)
			}
		}
		build.Dir, build.Env = b.dir, append(build.Environ(), "GOWORK=off")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", build, err, out)
		}
		b.exes = append(b.exes, exe)
	}
	return b
}

// run runs a build in a network namespace of its own, and returns its output.
func (b *stdBench) run(t *testing.T, build int, args ...string) string {
	t.Helper()
	cmd := exec.Command(b.forbid, append([]string{"-errno", "none", "-loopback", "--", b.exes[build], "-test.timeout=2m"}, args...)...)
	cmd.Dir, cmd.Env = b.dir, append(os.Environ(), "RINGSIDE_BACKEND=", "PWD="+b.dir)
	cmd.SysProcAttr = ownNetwork()
	out, err := cmd.Output()
	if err != nil {
		t.Errorf("%v: %v\n%s", cmd, err, tail(string(out)))
	}
	return string(out)
}

// names lists the benchmarks.
func (b *stdBench) names(t *testing.T) (names []string) {
	for line := range strings.Lines(b.run(t, 0, "-test.list=^Benchmark")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Benchmark") {
			names = append(names, line)
		}
	}
	return names
}

// comparison has, by the parts of a benchmark, the times of an operation with each build.
type comparison map[string][][]float64

// add runs a benchmark in each build, in random order each time.
func (c comparison) add(t *testing.T, b *stdBench, name string, rounds int) {
	for range rounds {
		var took [3]map[string]float64
		for _, i := range rand.Perm(len(changes)) {
			took[i] = times(b.run(t, i, "-test.run=^$", "-test.bench=^"+name+"$", "-test.benchtime="+benchTime.String()))
		}
		for part := range took[0] {
			if took[1][part] == 0 || took[2][part] == 0 {
				continue // it failed, which run has told
			}
			if c[part] == nil {
				c[part] = make([][]float64, len(changes))
			}
			for i := range changes {
				c[part][i] = append(c[part][i], took[i][part])
			}
		}
	}
}

// times reads the nanoseconds of an operation, by benchmark.
func times(out string) map[string]float64 {
	all := map[string]float64{}
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if at := slices.Index(words, "ns/op"); at > 1 && strings.HasPrefix(words[0], "Benchmark") {
			name := words[0]
			if i := strings.LastIndexByte(name, '-'); i > 0 {
				name = name[:i] // without GOMAXPROCS
			}
			if ns, err := strconv.ParseFloat(words[at-1], 64); err == nil && ns > 0 {
				all[name] = ns
			}
		}
	}
	return all
}

// mayLose reports whether a part of the benchmark is slower, as far as a few rounds show.
func (c comparison) mayLose() bool {
	for _, took := range c {
		for _, of := range took[1:] {
			if r := ratioOf(took[0], of); r.mean < 0.97 && r.best < 0.97 {
				return true
			}
		}
	}
	return false
}

// ratio is a mean of ratios with the interval that holds the true one in 95 of 100 cases, and the ratio of the
// least times: on a busy machine few rounds have the processor for themselves.
type ratio struct{ mean, low, high, best float64 }

func (r ratio) String() string {
	return fmt.Sprintf("%.2f (%.2f–%.2f), least %.2f", r.mean, r.low, r.high, r.best)
}

func (r ratio) loss() bool { return r.mean < benchLeast && r.high < 1 && r.best < benchLeast }

// ratioOf resamples pairs of times: the bootstrap's percentiles.
func ratioOf(std, own []float64) ratio {
	mean := func(pick func(i int) int) float64 {
		sum := 0.0
		for i := range std {
			i = pick(i)
			sum += math.Log(std[i] / own[i])
		}
		return math.Exp(sum / float64(len(std)))
	}
	draw := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, 2000)
	for i := range means {
		means[i] = mean(func(int) int { return draw.IntN(len(std)) })
	}
	slices.Sort(means)
	return ratio{
		mean(func(i int) int { return i }),
		means[len(means)/40], means[len(means)-1-len(means)/40],
		slices.Min(std) / slices.Min(own),
	}
}

// report lists the parts of the benchmark, and fails for each loss that is not known.
func (c comparison) report(t *testing.T, pkg string, known map[string]bool) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		files, sockets := ratioOf(c[name][0], c[name][1]), ratioOf(c[name][0], c[name][2])
		t.Logf("| %s %s | %v | %v |", pkg, name, files, sockets)
		for with, r := range map[string]ratio{"files": files, "files and sockets": sockets} {
			if r.loss() && !known[pkg+" "+name+" "+with] {
				t.Errorf("%s %s: with %s it has %v of go test's rate: mend it, or list it in results/notes/unchanged.md", pkg, name, with, r)
			}
		}
	}
}

// lossesTable begins the table of the losses.
const lossesTable = "| package | benchmark | with | rate | cause |\n|---|---|---|---|---|\n"

// knownLosses reads the table of the losses.
func knownLosses(t *testing.T) map[string]bool {
	page, err := os.ReadFile(filepath.Join(repo, "results", "notes", "unchanged.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), lossesTable)
	if !ok {
		t.Fatal("results/notes/unchanged.md has no table of losses")
	}
	known := map[string]bool{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 5 {
			break
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		known[strings.Join(cells[:3], " ")] = true
	}
	return known
}

// TestLossesAreFound checks the judge of TestGoBenchmarks by rates that are known.
func TestLossesAreFound(t *testing.T) {
	got := times("goos: linux\nBenchmarkTCP-2   \t  100\t  12345 ns/op\t 8 B/op\nBenchmarkServer/a-b-2 5 7.5 ns/op\nPASS\n")
	if len(got) != 2 || got["BenchmarkTCP"] != 12345 || got["BenchmarkServer/a-b"] != 7.5 {
		t.Errorf("times: %v", got)
	}
	noise := rand.New(rand.NewPCG(3, 4))
	for _, tc := range []struct {
		true float64
		loss bool
	}{{1.2, false}, {1, false}, {0.7, true}} {
		var std, own []float64
		for range rounds + moreRounds {
			std = append(std, 100*math.Exp(0.1*noise.NormFloat64()))
			own = append(own, 100/tc.true*math.Exp(0.1*noise.NormFloat64()))
		}
		if r := ratioOf(std, own); r.loss() != tc.loss {
			t.Errorf("true ratio %v: %v, loss %v", tc.true, r, r.loss())
		}
	}
}
