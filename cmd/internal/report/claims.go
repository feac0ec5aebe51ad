// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// choice is a pair of engines that a user chooses between. use and instead describe them in the
// user's words.
type choice struct{ suite, engine, against, use, instead string }

// choices are the compared engines. First come the choices of a user of ringside. Then come
// comparisons that show where a difference comes from.
var choices = []choice{
	{"file", "ringside", "os", "ufile", "os.File"},
	{"file", "ringside", "fio", "ufile", "fio"},
	{"net", "ringside-conn", "std", "unet", "package net"},
	{"net", "ringside-conn", "ringside-plain", "unet on io_uring", "unet with plain calls"},
	{"net", "ringside-event", "std", "unet/event", "package net"},
	{"net", "ringside-event", "ringside-event-epoll", "unet/event on io_uring", "unet/event on epoll"},
	{"net", "ringside-event", "gnet", "unet/event", "gnet"},
	{"net", "ringside-event", "liburing", "unet/event", "a server in C on liburing"},
	{"net", "ringside-batch", "std", "unet's batches of datagrams", "package net"},
	{"net", "ringside-batch", "xnet-batch", "unet's batches of datagrams", "golang.org/x/net's"},
	{"net", "ringside-event", "xnet-batch", "unet/event", "golang.org/x/net's batches of datagrams"},
	{"ring", "ringside", "liburing", "uring", "liburing"},
	{"watch", "io_uring", "epoll", "watch on io_uring", "watch on epoll"},
	{"sqlite", "ringside", "default", "sqlitevfs", "the default VFS"},
	{"sqlite", "ringside-log", "default", "sqlitevfs with the shared log", "the default VFS"},
	{"sqlite", "ringside-group", "default", "sqlitevfs with group sync", "the default VFS"},
	{"sqlite", "ringside", "ringside-plain", "sqlitevfs", "the default VFS with syncs of directories"},
	{"sqlite", "ringside", "modernc", "sqlitevfs", "modernc.org/sqlite"},
	{"sqlite", "ringside", "mattn", "sqlitevfs", "mattn/go-sqlite3"},
	{"sqlite", "ringside-log", "mattn", "sqlitevfs with the shared log", "mattn/go-sqlite3"},
	{Try, "ringside", "go", "ringside build", "go build"},
}

// Try is the suite of "ringside try": builds of a program that was not made for measuring.
const Try = "try"

// ownWords are the words for a choice in workloads that use another part of ringside.
var ownWords = map[[2]string][2]string{
	{"file", "append"}: {"appendlog", "a plain group commit"},
	{"file", "batch"}:  {"ufile.Batch", "an errgroup of reads"},
	{"file", "pebble"}: {"pebblevfs", "pebble's own files"},
}

// These are the kinds of claims.
const (
	// Gain is a higher rate, or less CPU time where the rate shows no difference.
	Gain = "gain"
	// Loss is a lower rate, or more CPU time where the rate shows no difference.
	Loss = "loss"
	// None is a difference of less than 5 %.
	None = "none"
	// Open is what the run could not decide.
	Open = "open"
)

// Claim is the finding about one work and one choice.
type Claim struct {
	Suite    string `json:"suite"`
	Use      string `json:"use"`
	Instead  string `json:"instead"`
	Workload string `json:"workload"`
	Point    string `json:"point"`
	Params   Params `json:"params,omitempty"`
	// Kind is Gain, Loss, None or Open. It is about the rate, or if that shows no difference, about
	// CPU time. In the suite Try it may be about P99, if neither shows one.
	Kind string `json:"kind"`
	// Rate, CPU and P99 are ratios of the rate, of CPU time for each operation and of the 99th
	// percentile of latency. CPU and P99 are zero if they are unknown. The mean latency of a closed
	// loop is the inverse of the rate, and its median misleads. P99 is unknown if callers starved.
	Rate Interval `json:"rate"`
	CPU  Interval `json:"cpu,omitzero"`
	P99  Interval `json:"p99,omitzero"`

	engines                    [2]string
	rateTold, cpuTold, p99Told bool // the difference is a discovery
}

// Claims returns the findings of the run. They are judged together.
func (r *Run) Claims() []Claim {
	r.assess()
	cells := r.questions()
	var out []Claim
	for _, ch := range choices {
		for _, c := range cells {
			for _, pair := range c.pairsOf(ch) {
				one := Claim{
					Suite: c.Suite, Use: ch.use, Instead: ch.instead, Workload: c.Workload, Point: c.point(), Params: c.Params,
					engines: [2]string{pair[0].Engine, pair[1].Engine},
				}
				if own, ok := ownWords[[2]string{c.Suite, c.Workload}]; ok && ch.against == "os" {
					one.Use, one.Instead = own[0], own[1]
				}
				if _, journal, ok := strings.Cut(strings.TrimPrefix(pair[0].Engine, ch.engine), "-"); ok {
					one.Point += ", " + journal
				}
				var ok bool
				if one.Rate, ok = c.interval(pair[0], pair[1], measure.OpsPerS); !ok {
					continue
				}
				one.CPU, _ = c.interval(pair[0], pair[1], measure.CPUUsPerOp)
				if !c.starves(pair[0]) && !c.starves(pair[1]) {
					one.P99, _ = c.interval(pair[0], pair[1], measure.P99Us)
				}
				out = append(out, one)
			}
		}
	}
	return judged(out)
}

// starves reports whether the 99th percentile of latency of several callers is below the mean, which is their
// number divided by the rate. Then few callers do all that ends, while others wait for longer than the
// measurement. One caller may pause between operations.
func (c Cell) starves(s Series) bool {
	callers := 1.0
	for _, param := range []string{"goroutines", "connections", "databases"} {
		if n, ok := c.Params.Number(param); ok {
			callers *= n
		}
	}
	p99, ok := s.Summary(measure.P99Us)
	rate, known := s.Summary(measure.OpsPerS)
	return ok && known && callers > 1 && p99.Median*rate.Median < callers*1e6
}

// questions returns the cells of the run, with one cell for all speed tests of SQLite: the geometric
// mean of each round.
func (r *Run) questions() []Cell {
	var out, tests []Cell
	for _, c := range r.Cells {
		if c.Params["test"] == nil {
			out = append(out, c)
		} else {
			tests = append(tests, c)
		}
	}
	if len(tests) == 0 {
		return out
	}
	all := Cell{Suite: tests[0].Suite, Workload: tests[0].Workload, noise: tests[0].noise}
	for i, s := range tests[0].Series {
		one := Series{Engine: s.Engine}
		for n := range s.Samples {
			sample := Sample{Start: n, Metrics: map[string]float64{}}
			for _, metric := range []string{measure.OpsPerS, measure.CPUUsPerOp} {
				sum := 0.0
				for _, t := range tests {
					sum += math.Log(t.Series[i].Samples[n].Metrics[metric])
				}
				sample.Metrics[metric] = math.Exp(sum / float64(len(tests)))
			}
			one.Samples = append(one.Samples, sample)
		}
		all.Series = append(all.Series, one)
	}
	return append(out, all)
}

// judged sets the kinds of claims that belong together.
func judged(claims []Claim) []Claim {
	chances := make([]float64, 0, 2*len(claims))
	for _, c := range claims {
		chances = append(chances, c.Rate.chance)
		if c.CPU.known() {
			chances = append(chances, c.CPU.chance)
		}
		if c.judgesP99() {
			chances = append(chances, c.P99.chance)
		}
	}
	told := discoveries(chances)
	for i := range claims {
		c := &claims[i]
		c.rateTold, told = told[0], told[1:]
		if c.CPU.known() {
			c.cpuTold, told = told[0], told[1:]
		}
		if c.judgesP99() {
			c.p99Told, told = told[0], told[1:]
		}
		c.Kind = c.kind()
	}
	return claims
}

// judgesP99 reports whether the claim may be about latency. Sockets of unchanged programs gain in it.
func (c Claim) judgesP99() bool { return c.Suite == Try && c.P99.known() }

// Told returns which differences between the engines are larger than the noise.
func (c Claim) Told() (rate, cpu, p99 bool) {
	return c.rateTold && !c.Rate.alike(), c.cpuTold && !c.CPU.alike(), c.p99Told && !c.P99.alike()
}

// leastRate is the rate from which on less CPU time is a gain, if the rate's own difference is open. A
// busy machine spreads rates, and CPU time for each operation much less.
const leastRate = 0.7

func (c Claim) kind() string {
	switch {
	case c.rateTold && !c.Rate.alike():
		return side(c.Rate.Ratio > 1)
	case c.byCPU():
		return side(c.CPU.Ratio < 1)
	case c.p99Told && !c.P99.alike():
		return side(c.P99.Ratio < 1)
	case c.Rate.alike():
		return None
	}
	return Open
}

// byCPU reports whether CPU time decides, because the rate does not.
func (c Claim) byCPU() bool {
	if c.rateTold && !c.Rate.alike() || !c.cpuTold || c.CPU.alike() {
		return false
	}
	if c.CPU.Ratio < 1 {
		return c.Rate.Ratio >= 1-alikeWithin && c.Rate.Low >= leastRate
	}
	return c.Rate.Ratio <= 1+alikeWithin && c.Rate.bounded() && c.Rate.High <= 1/leastRate
}

func side(better bool) string {
	if better {
		return Gain
	}
	return Loss
}

// pairsOf returns the series of both engines. With SQLite the names of the series may end with the
// journal mode.
func (c Cell) pairsOf(ch choice) (out [][2]Series) {
	if c.Suite != ch.suite {
		return nil
	}
	for _, suffix := range append([]string{""}, journals...) {
		s, ok := c.Find(ch.engine + suffix)
		other, both := c.Find(ch.against + suffix)
		if ok && both {
			out = append(out, [2]Series{s, other})
		}
	}
	return out
}

// assess estimates the noise of the run's workloads, and makes one cell of SQLite's speed tests.
func (r *Run) assess() {
	if len(r.Cells) == 0 || r.Cells[0].noise != nil {
		return
	}
	n := noiseOf(r.Cells)
	for i := range r.Cells {
		r.Cells[i].noise = n
	}
}

// Command returns the command that measures the claim alone, for longer.
func (c Claim) Command() string {
	if c.Suite == Try {
		return "the same 'ringside try' with more --starts"
	}
	words := []string{"ringside bench", c.Suite, "--workload", c.Workload}
	if c.Suite == "watch" {
		words = words[:2]
	}
	for _, f := range [][2]string{
		{"cache", "cache"}, {"block", "block"}, {"goroutines", "goroutines"}, {"record", "record"}, {"size", "size"},
		{"connections", "connections"}, {"body", "body"}, {"journal", "journal"}, {"databases", "databases"}, {"what", "cold"},
		{"source", "source"}, {"mode", "mode"}, {"active", "active"}, {"client", "client"},
	} {
		v, ok := c.Params[f[0]]
		if !ok || c.Suite == "sqlite" && f[0] == "connections" && fmt.Sprint(v) == "1" || f[0] == "client" && v == "own" ||
			c.Workload == "append" && f[0] == "cache" || c.Workload == "batch" && f[0] == "goroutines" {
			continue
		}
		words = append(words, "--"+f[1], fmt.Sprint(v))
	}
	if c.Suite != "file" {
		names := []string{c.engines[1], c.engines[0]}
		for i := range names {
			for _, j := range journals {
				names[i] = strings.TrimSuffix(names[i], j)
			}
		}
		words = append(words, "--engine", strings.Join(names, ","))
	}
	return strings.Join(append(words, "--time 1m"), " ")
}

// Findings are the claims of a run in machine-readable form.
type Findings struct {
	Host Host `json:"host"`
	// Notes are conditions that disturb the figures.
	Notes   []string `json:"notes,omitempty"`
	Claims  []Claim  `json:"claims"`
	Skipped []Skip   `json:"skipped,omitempty"`
}

// Findings returns the claims of the run.
func (r *Run) Findings() Findings {
	return Findings{Host: r.Host, Notes: r.Notes, Claims: append([]Claim{}, r.Claims()...), Skipped: r.Skipped}
}
