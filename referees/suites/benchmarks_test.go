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
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/overlay"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

// changes are what the builds of the benchmarks differ by: the first is go test's, the second what "ringside
// test" makes, the third that with --files --sockets.
var changes = []overlay.Options{{}, {Files: true}, {Files: true, Sockets: true}}

const (
	// benchTime is how long a benchmark runs, about. Most programs of the benchmarks begin and end in as long,
	// and those that send files write files of the size that they send meanwhile.
	benchTime = 20 * time.Millisecond
	// benchLeast is the least ratio of the rates that is no loss.
	benchLeast = 0.95
	// layouts is how often each build is linked, each time with its functions in another order: what a loop that
	// lies across two lines of the cache costs is no property of the overlay.
	layouts = 5
)

// sizes are those of the benchmarks of sendfile(2) and splice(2), of eleven each, that need RINGSIDE_LONG: all
// start processes and write files, and take longer than the other benchmarks together.
const sizes = "^Benchmark(SendFile|Splice|SpliceFile)$/./^(2048|4096|8192|16384|65536|131072|262144|524288)$"

// rounds is how often each build runs a benchmark: all, those parts that may then be losses, and those that may
// still be. A loss is told after the last ones only: a judge that looks often finds one by chance.
var rounds = [3]int{5, 15, 40}

// TestGoBenchmarks runs the benchmarks of os, net and net/http as go test builds them and with the overlay, in
// turn. A loss is a rate whose interval lies below benchLeast of go test's. Each loss must stand in the table of
// results/notes/unchanged.md.
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
					c.add(t, b, name, rounds[0])
					for _, more := range rounds[1:] {
						for _, part := range c.doubtful() {
							c.add(t, b, part, more)
						}
					}
					c.report(t, pkg, known)
				})
			}
		})
	}
}

// stdBench is the benchmarks of a package in three builds, each with several layouts.
type stdBench struct {
	dir, forbid string
	exes        [3][layouts]string
}

func newStdBench(t *testing.T, pkg string) *stdBench {
	w := newWorkshop(t, suite{name: pkg})
	forbid, err := forbid()
	if err != nil {
		t.Fatal(err)
	}
	b := &stdBench{dir: filepath.Join(w.dir, pkg), forbid: forbid}
	for i, o := range changes {
		for layout := range layouts {
			exe := filepath.Join(scratch, fmt.Sprintf("bench%d-%d_%s.test", i, layout, strings.ReplaceAll(pkg, "/", "_")))
			args := []string{"-c", fmt.Sprintf("-ldflags=-w -randlayout=%d", layout+1), "-o", exe, "."}
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
			b.exes[i][layout] = exe
		}
	}
	return b
}

// run runs a build in a network namespace of its own, and returns its output.
func (b *stdBench) run(t *testing.T, build, layout int, args ...string) string {
	t.Helper()
	cmd := exec.Command(b.forbid,
		append([]string{"-errno", "none", "-loopback", "--", b.exes[build][layout], "-test.timeout=2m"}, args...)...)
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
	for line := range strings.Lines(b.run(t, 0, 0, "-test.list=^Benchmark")) {
		if line = strings.TrimSpace(line); strings.HasPrefix(line, "Benchmark") {
			names = append(names, line)
		}
	}
	return names
}

// comparison has, by the parts of a benchmark, the times of an operation with each build.
type comparison map[string][][]float64

// add runs a benchmark, or a part of one, in each build, in random order each time.
func (c comparison) add(t *testing.T, b *stdBench, name string, rounds int) {
	pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
	args := []string{"-test.run=^$", "-test.bench=" + pattern, "-test.benchtime=" + benchTime.String()}
	if !ringtest.Long() {
		args = append(args, "-test.skip="+sizes)
	}
	for round := range rounds {
		var took [3]map[string]float64
		for _, i := range rand.Perm(len(changes)) {
			took[i] = times(b.run(t, i, round%layouts, args...))
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
	processors := fmt.Sprintf("-%d", runtime.GOMAXPROCS(0))
	for line := range strings.Lines(out) {
		words := strings.Fields(line)
		if at := slices.Index(words, "ns/op"); at > 1 && strings.HasPrefix(words[0], "Benchmark") {
			if ns, err := strconv.ParseFloat(words[at-1], 64); err == nil && ns > 0 {
				all[strings.TrimSuffix(words[0], processors)] = ns
			}
		}
	}
	return all
}

// doubtful returns the parts that are slower, as far as their rounds show.
func (c comparison) doubtful() (parts []string) {
	for part, took := range c {
		if ratioOf(took[0], took[1]).median < benchLeast || ratioOf(took[0], took[2]).median < benchLeast {
			parts = append(parts, part)
		}
	}
	slices.Sort(parts)
	return parts
}

// ratio is the median of the ratios of the rates of all rounds, with the interval that holds the true one in 95
// of 100 cases. A round that other processes have slowed moves neither by much.
type ratio struct {
	median, low, high float64
	rounds            int
}

func (r ratio) String() string { return fmt.Sprintf("%.2f (%.2f–%.2f)", r.median, r.low, r.high) }

func (r ratio) loss() bool { return r.high < benchLeast }

// ratioOf sorts the ratios: so many of them lie below the true median as coins show heads.
func ratioOf(std, own []float64) ratio {
	all := make([]float64, len(std))
	for i := range std {
		all[i] = std[i] / own[i]
	}
	slices.Sort(all)
	n := len(all)
	outside := 0 // of the ratios on each side of the interval
	for beyond, one := 0.0, math.Pow(0.5, float64(n)); outside < n/2; outside++ {
		if beyond += one; beyond > 0.025 {
			break
		}
		one *= float64(n-outside) / float64(outside+1)
	}
	outside = max(outside-1, 0)
	return ratio{(all[n/2] + all[(n-1)/2]) / 2, all[outside], all[n-1-outside], n}
}

// report lists the parts of the benchmark, and fails for each loss that is not known.
func (c comparison) report(t *testing.T, pkg string, known losses) {
	for _, name := range slices.Sorted(maps.Keys(c)) {
		files, sockets := ratioOf(c[name][0], c[name][1]), ratioOf(c[name][0], c[name][2])
		t.Logf("| %s | %s | %v | %v | %d |", pkg, strings.TrimPrefix(name, "Benchmark"), files, sockets, files.rounds)
		for with, r := range map[string]ratio{"files": files, "files and sockets": sockets} {
			if r.loss() && !known.cover(pkg, strings.TrimPrefix(name, "Benchmark"), with) {
				t.Errorf("%s %s: with %s it has %v of go test's rate: mend it, or list it in results/notes/unchanged.md", pkg, name, with, r)
			}
		}
	}
}

// lossesTable begins the table of the losses.
const lossesTable = "| package | benchmark | with | rate | cause |\n|---|---|---|---|---|\n"

// losses are rows of the table, by package, benchmark and what the overlay changes.
type losses map[[3]string]bool

// cover reports whether a row is about a benchmark or one that it is a part of.
func (l losses) cover(pkg, name, with string) bool {
	for {
		if l[[3]string{pkg, name, with}] {
			return true
		}
		i := strings.LastIndexByte(name, '/')
		if i < 0 {
			return false
		}
		name = name[:i]
	}
}

// knownLosses reads the table of the losses.
func knownLosses(t *testing.T) losses {
	page, err := os.ReadFile(filepath.Join(repo, "results", "notes", "unchanged.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, table, ok := strings.Cut(string(page), lossesTable)
	if !ok {
		t.Fatal("results/notes/unchanged.md has no table of losses")
	}
	known := losses{}
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "|\n"), "|")
		if len(cells) != 5 {
			break
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		known[[3]string(cells[:3])] = true
	}
	return known
}

// TestLossesAreFound checks the judge of TestGoBenchmarks by rates that are known, on a machine where every third
// round takes up to ten times as long.
func TestLossesAreFound(t *testing.T) {
	suffix := fmt.Sprintf("-%d", runtime.GOMAXPROCS(0))
	got := times("goos: linux\nBenchmarkTCP" + suffix + "   \t  100\t  12345 ns/op\t 8 B/op\nBenchmarkServer/a-b" +
		suffix + " 5 7.5 ns/op\nPASS\n")
	if len(got) != 2 || got["BenchmarkTCP"] != 12345 || got["BenchmarkServer/a-b"] != 7.5 {
		t.Errorf("times: %v", got)
	}
	known := knownLosses(t)
	if !known.cover("net/http", "CloseNotifier/h1/part", "files and sockets") || known.cover("net/http", "CloseNotifier", "files and sockets") {
		t.Errorf("the table of losses: %v", known)
	}
	noise := rand.New(rand.NewPCG(3, 4))
	took := func(mean float64) float64 {
		ns := mean * math.Exp(0.1*noise.NormFloat64())
		if noise.IntN(3) == 0 {
			ns *= 1 + 9*noise.Float64()
		}
		return ns
	}
	const turns = 400
	for _, tc := range []struct {
		rate        float64
		least, most int // of the turns that tell a loss
	}{{1.1, 0, 0}, {1, 0, 4}, {benchLeast, 0, 20}, {0.7, 380, turns}} {
		losses := 0
		for range turns {
			var std, own []float64
			for range rounds[0] + rounds[1] + rounds[2] {
				std, own = append(std, took(100)), append(own, took(100/tc.rate))
			}
			if ratioOf(std, own).loss() {
				losses++
			}
		}
		if losses < tc.least || losses > tc.most {
			t.Errorf("a rate of %v is a loss in %d of %d turns, want %d to %d", tc.rate, losses, turns, tc.least, tc.most)
		}
	}
}
