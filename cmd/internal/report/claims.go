// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"

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

const (
	// minStarts is the least number of starts for a verdict.
	minStarts = 4
	// nullWidth is the greatest difference that a comparison of an engine with itself may show, nullCommits that of
	// commits to databases, whose files lie in different places of the device (results/notes/bench.md). A claim means
	// that the true ratio differs from 1 by more.
	nullWidth, nullCommits = 0.01, 0.05
	// alikeWithin is the greatest difference between two engines that are called alike.
	alikeWithin = 0.05
	// falseClaims is the expected share of false claims among the claims of a run.
	falseClaims = 0.05
	// priorDF is the weight, in degrees of freedom, of the other cells of a workload in the estimate
	// of a cell's noise.
	priorDF = 4
	// A comparison ends early if its distance from no difference is sureErrors standard errors, or if it is
	// alike by alikeErrors. No start is taken to deviate less than leastDeviation, since four starts may
	// agree by chance: workloads deviate by 0.05 to 0.2. So what ends early adds no false claims.
	sureErrors, alikeErrors = 6, 3
	leastDeviation          = 0.15
	// trimmedPairs and trimmedStarts are the shares of values that the means of a start's pairs and of
	// the starts leave out at each end.
	trimmedPairs, trimmedStarts = 0.2, 0.1
)

// Interval is the ratio of two engines with its interval: in 95 of 100 runs the interval holds the
// true ratio. With fewer than four starts Low and High are 0.
//
// The estimate is a mean of logarithms in two steps. The pairs of one start of both engines give the
// mean without the fifth at each end: on a busy machine a few turns lose their processor, and the
// rest are normal enough. The means of the starts give the estimate. Their variance includes what a
// process keeps for its life (the layout of its memory, its threads, the places of its sockets), which
// the pairs of one start cannot show. Few starts estimate a variance badly, so it is moderated: the
// median variance of the workload's other cells counts like four more starts where it is greater, and
// never makes an interval shorter than the pairs themselves do. Quantiles are those of Student's t.
// From ten starts on, as in cells that are measured in rounds, the mean of the starts leaves out a tenth
// at each end as well, with a winsorised variance (Yuen 1974).
type Interval struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Starts are the ratios of the starts, in their order.
	Starts []float64 `json:"-"`

	chance float64 // of such a ratio if the true one lies within [Cell.null] of 1
}

// known reports whether there is a ratio, and bounded whether it has an interval.
func (i Interval) known() bool { return i.Ratio > 0 }

func (i Interval) bounded() bool { return i.High > 0 }

// alike reports whether any difference is smaller than alikeWithin.
func (i Interval) alike() bool { return i.Low >= 1-alikeWithin && i.High <= 1+alikeWithin }

// noise is the median variance of the starts of the comparisons of a workload, by suite, workload and
// metric.
type noise map[[3]string]float64

// noiseOf estimates the noise of the run's workloads.
func noiseOf(cells []Cell) noise {
	all := map[[3]string][]float64{}
	for _, c := range cells {
		for _, s := range c.Series[min(1, len(c.Series)):] {
			for _, metric := range []string{measure.OpsPerS, measure.CPUUsPerOp, measure.P99Us} {
				if e, ok := estimateOf(s, c.base(s.Engine), metric); ok && len(e.values) > 1 {
					all[c.noiseKey(metric)] = append(all[c.noiseKey(metric)], e.variance)
				}
			}
		}
	}
	n := noise{}
	for key, variances := range all {
		if len(variances) > 1 { // a cell does not support itself
			n[key] = measure.Summarize(variances).Median
		}
	}
	return n
}

func (c Cell) noiseKey(metric string) [3]string { return [3]string{c.Suite, c.Workload, metric} }

// null is the greatest difference that a comparison of an engine with itself may show.
func (c Cell) null() float64 {
	if c.Suite == "sqlite" && c.Params["databases"] != nil {
		return nullCommits
	}
	return nullWidth
}

// interval compares a metric of two series of the cell. It returns false if they cannot be compared.
func (c Cell) interval(s, against Series, metric string) (Interval, bool) {
	e, ok := estimateOf(s, against, metric)
	if !ok {
		return Interval{}, false
	}
	return e.interval(c.noise[c.noiseKey(metric)], c.null()), true
}

// Sure reports whether the rates of all engines are decided so clearly that more samples decide nothing.
func (c Cell) Sure() bool {
	for _, s := range c.Series[min(1, len(c.Series)):] {
		if e, ok := estimateOf(s, c.base(s.Engine), measure.OpsPerS); !ok || !e.sure() {
			return false
		}
	}
	return len(c.Series) > 1
}

func (e estimate) sure() bool {
	if len(e.values) < minStarts {
		return false
	}
	deviation := max(math.Sqrt(max(e.variance, e.within)), leastDeviation) / math.Sqrt(e.kept)
	away := math.Abs(e.mean)
	return away-sureErrors*deviation > math.Log1p(nullWidth) || away+alikeErrors*deviation < math.Log1p(alikeWithin)
}

// estimate is the mean logarithm of a ratio and what is known about its error.
type estimate struct {
	values []float64 // of each start
	mean   float64
	// variance is that of a value, and kept is the number of values in the mean. within is the part
	// of the variance that the pairs of a start explain.
	variance, kept, within float64
}

// estimateOf returns the estimate of a metric's ratio. It returns false without samples of both.
func estimateOf(s, against Series, metric string) (estimate, bool) {
	mine, theirs := s.logs(metric), against.logs(metric)
	var e estimate
	for start := range max(len(mine), len(theirs)) {
		if start >= len(mine) || start >= len(theirs) || len(mine[start]) == 0 || len(theirs[start]) == 0 {
			continue
		}
		x, y := mine[start], theirs[start]
		if len(x) != len(y) { // One of them was measured in rounds.
			a, _, _ := trimmed(x, trimmedPairs)
			b, _, _ := trimmed(y, trimmedPairs)
			e.values = append(e.values, a-b)
			continue
		}
		d := make([]float64, len(x))
		for i := range d {
			d[i] = x[i] - y[i]
		}
		m, v, kept := trimmed(d, trimmedPairs)
		e.values = append(e.values, m)
		if len(d) > 1 {
			e.within += v / kept
		}
	}
	n := float64(len(e.values))
	if n == 0 {
		return e, false
	}
	e.within /= n
	e.mean, e.variance, e.kept = trimmed(e.values, trimmedStarts)
	return e, true
}

// interval returns the interval, with the noise of the workload's other cells, and the chance with the greatest
// difference of a comparison of an engine with itself.
func (e estimate) interval(prior, null float64) Interval {
	df, v := e.kept-1, e.variance
	if prior > 0 {
		v = max(v, (df*v+priorDF*prior)/(df+priorDF))
		df += priorDF
	}
	deviation := math.Sqrt(max(v, e.within) / e.kept)
	i := Interval{Ratio: math.Exp(e.mean), chance: 1}
	for _, v := range e.values {
		i.Starts = append(i.Starts, math.Exp(v))
	}
	if len(e.values) < minStarts || df < 1 {
		return i // without an interval
	}
	half := quantile(df) * deviation
	i.Low, i.High = math.Exp(e.mean-half), math.Exp(e.mean+half)
	i.chance = chance(math.Abs(e.mean)-math.Log1p(null), deviation, df)
	return i
}

// chance returns the probability, by Student's t-distribution, that a mean exceeds the hypothesis
// by beyond although the hypothesis holds.
func chance(beyond, deviation, df float64) float64 {
	switch {
	case beyond <= 0:
		return 1
	case deviation == 0:
		return 0
	}
	return 2 * (1 - stats.TDist{V: df}.CDF(beyond/deviation))
}

// quantile returns the 97.5 % quantile of Student's t-distribution.
func quantile(df float64) float64 {
	low, high := 1.9, 13.0
	for range 40 {
		if mid := (low + high) / 2; (stats.TDist{V: df}).CDF(mid) < 0.975 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// trimmed returns the trimmed mean, the variance of a kept value by the winsorised variance of all, and
// how many values were kept.
func trimmed(values []float64, share float64) (m, v, kept float64) {
	s := slices.Sorted(slices.Values(values))
	cut := int(share * float64(len(s)))
	m = mean(s[cut : len(s)-cut])
	n, h := float64(len(s)), float64(len(s)-2*cut)
	for i := range cut {
		s[i], s[len(s)-1-i] = s[cut], s[len(s)-1-cut]
	}
	if h < 2 {
		return m, 0, h
	}
	return m, variance(s) * (n - 1) / (h - 1), h
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// variance returns the unbiased estimate, or 0 for fewer than two values.
func variance(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(values)-1)
}

// logs returns the logarithms of a metric by start. Values that are not positive have none.
func (s Series) logs(metric string) (out [][]float64) {
	for _, sample := range s.Samples {
		v, ok := sample.Metrics[metric]
		if !ok || !(v > 0) || math.IsInf(v, 0) {
			continue
		}
		for len(out) <= sample.Start {
			out = append(out, nil)
		}
		out[sample.Start] = append(out[sample.Start], math.Log(v))
	}
	return out
}

// discoveries returns which chances are small enough for a claim, so that at most falseClaims of the
// claims are expected to be false (Benjamini and Hochberg 1995). If no difference is true, that is the
// chance of any claim.
func discoveries(chances []float64) []bool {
	sorted := slices.Sorted(slices.Values(chances))
	limit := -1.0
	for i, p := range sorted {
		if p <= falseClaims*float64(i+1)/float64(len(sorted)) {
			limit = p
		}
	}
	out := make([]bool, len(chances))
	for i, p := range chances {
		out[i] = p <= limit
	}
	return out
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
