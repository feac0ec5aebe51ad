// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"golang.org/x/perf/benchmath"
)

// compared are the metrics of which a comparison tells, and whether more of it is better. The time of
// an operation is left to the rate.
var compared = []struct {
	metric, title string
	moreIsBetter  bool
}{
	{measure.OpsPerS, "ops/s", true},
	{measure.CPUUsPerOp, "CPU µs/op", false},
	{measure.P99Us, "p99 µs", false},
	{measure.AllocsPerOp, "allocs/op", false},
	{measure.Threads, "threads", false},
	{HeapPerConn, "heap B/conn", false},
	{IdleCPU, "CPU µs/s", false},
}

// Verdicts of a change.
const (
	Better = "better"
	Worse  = "worse"
	// Same means that the samples do not tell the two from each other.
	Same = "same"
	// Unclear means that there are too few samples to tell anything.
	Unclear = "unclear"
)

// alpha is the probability up to which a difference is taken for one that chance does not explain.
const alpha = 0.05

// Comparison is what two result files tell about the same measurements.
type Comparison struct {
	// Old and New are the circumstances, Differs the parts of them that are not the same.
	Old     Host         `json:"old"`
	New     Host         `json:"new"`
	Differs []Difference `json:"differs"`
	Changes []Change     `json:"changes"`
	// OnlyOld and OnlyNew name what only one of the files has.
	OnlyOld []string `json:"only_old,omitempty"`
	OnlyNew []string `json:"only_new,omitempty"`
}

// Difference is a circumstance that is not the same in both files.
type Difference struct {
	Name string `json:"name"`
	Old  string `json:"old"`
	New  string `json:"new"`
}

// Change is one metric of one engine in one cell, before and after.
type Change struct {
	Suite    string          `json:"suite"`
	Workload string          `json:"workload"`
	Params   Params          `json:"params"`
	Engine   string          `json:"engine"`
	Metric   string          `json:"metric"`
	Old      measure.Summary `json:"old"`
	New      measure.Summary `json:"new"`
	// Ratio is the new median divided by the old one; 0 where the old one is 0.
	Ratio float64 `json:"ratio"`
	// P is the probability of samples that differ so much where there is no difference
	// (Mann-Whitney U test); nil for files without samples, which are judged by their ranges.
	P       *float64 `json:"p,omitempty"`
	Verdict string   `json:"verdict"`
}

// Compare puts two result files beside each other. A change has a verdict if the samples of both
// files tell them apart, and the medians differ by more than 2 %.
func Compare(before, after *Document) *Comparison {
	c := &Comparison{Old: before.Host, New: after.Host, Differs: differences(before.Host, after.Host), Changes: []Change{}}
	earlier := map[string]Result{}
	for _, r := range before.Results {
		earlier[r.key()] = r
	}
	for _, r := range after.Results {
		old, ok := earlier[r.key()]
		if !ok {
			c.OnlyNew = append(c.OnlyNew, r.key())
			continue
		}
		delete(earlier, r.key())
		c.Changes = append(c.Changes, changes(old, r)...)
	}
	c.OnlyOld = slices.Sorted(maps.Keys(earlier))
	return c
}

// key names what was measured: all but the device, which is a matter of the circumstances.
func (r Result) key() string {
	cell := Cell{Suite: r.Suite, Workload: r.Workload, Params: r.Params}
	return r.Suite + " " + cell.benchName(r.Engine, 1)
}

func changes(before, after Result) []Change {
	var out []Change
	for _, m := range compared {
		old, ok := before.Metrics[m.metric]
		current, both := after.Metrics[m.metric]
		if !ok || !both {
			continue
		}
		ch := Change{
			Suite: after.Suite, Workload: after.Workload, Params: after.Params, Engine: after.Engine,
			Metric: m.metric, Old: old, New: current,
		}
		if old.Median != 0 {
			ch.Ratio = current.Median / old.Median
		}
		ch.judge(before.Samples[m.metric], after.Samples[m.metric], m.moreIsBetter)
		out = append(out, ch)
	}
	return out
}

// judge fills in the verdict.
func (c *Change) judge(before, after []float64, moreIsBetter bool) {
	apart := c.Old.Max < c.New.Min || c.New.Max < c.Old.Min
	if len(before) > 0 && len(after) > 0 { // otherwise ranges are all that both have
		if len(before) < minPairs || len(after) < minPairs {
			c.Verdict = Unclear
			return
		}
		p := 1.0 // The test cannot rank values that are all the same.
		if c.Old != c.New || c.Old.Min != c.Old.Max {
			p = benchmath.AssumeNothing.Compare(sampleOf(before), sampleOf(after)).P
		}
		c.P, apart = &p, p < alpha
	}
	effect := math.Abs(c.New.Median-c.Old.Median) > minEffect*math.Abs(c.Old.Median)
	switch {
	case !apart || !effect:
		c.Verdict = Same
	case (c.New.Median > c.Old.Median) == moreIsBetter:
		c.Verdict = Better
	default:
		c.Verdict = Worse
	}
}

func sampleOf(values []float64) *benchmath.Sample {
	thresholds := benchmath.DefaultThresholds
	thresholds.CompareAlpha = alpha
	return benchmath.NewSample(slices.Clone(values), &thresholds)
}

// differences are the circumstances that are not the same.
func differences(before, after Host) []Difference {
	var out []Difference
	for _, d := range []Difference{
		{"kernel", before.Kernel, after.Kernel},
		{"cpu", before.CPU, after.CPU},
		{"cores", fmt.Sprint(before.Cores), fmt.Sprint(after.Cores)},
		{"GOMAXPROCS", fmt.Sprint(before.GOMAXPROCS), fmt.Sprint(after.GOMAXPROCS)},
		{"platform", before.OS + "/" + before.Arch, after.OS + "/" + after.Arch},
		{"go", before.Go, after.Go},
		{"ringside", cmp.Or(before.Commit, before.Ringside), cmp.Or(after.Commit, after.Ringside)},
		{"backend", before.Backend, after.Backend},
		{"device", before.Device, after.Device},
		{"filesystem", before.Filesystem, after.Filesystem},
		{"mount options", before.Mount, after.Mount},
		{"peers", strings.Join(before.Peers, "; "), strings.Join(after.Peers, "; ")},
		{"pairs", fmt.Sprint(before.Pairs), fmt.Sprint(after.Pairs)},
		{"window", fmt.Sprintf("%g ms", before.DurationMs), fmt.Sprintf("%g ms", after.DurationMs)},
	} {
		if d.Old != d.New {
			out = append(out, d)
		}
	}
	return out
}

// Count returns how many changes have the verdict.
func (c *Comparison) Count(verdict string) int {
	n := 0
	for _, ch := range c.Changes {
		if ch.Verdict == verdict {
			n++
		}
	}
	return n
}

// WriteText writes what changed, a table for each metric, and a summary. Lines without a difference
// are left out unless all is true.
func (c *Comparison) WriteText(w io.Writer, all bool, style Style) error {
	var b strings.Builder
	for _, d := range c.Differs {
		fmt.Fprintf(&b, "%-14s %s -> %s\n", d.Name+":", orNone(d.Old), orNone(d.New))
	}
	if len(c.Differs) > 0 {
		b.WriteString("\n")
	}
	for _, m := range compared {
		c.writeMetric(&b, m.metric, m.title, all, style)
	}
	c.writeSummary(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func orNone(s string) string {
	if s == "" {
		return "(none)"
	}
	return s
}

func (c *Comparison) writeMetric(b *strings.Builder, metric, title string, all bool, style Style) {
	t := table{}
	t.add(nil, title, "old", "new", "change", "p", "")
	same := 0
	for _, ch := range c.Changes {
		switch {
		case ch.Metric != metric:
			continue
		case ch.Verdict == Same && !all:
			same++
			continue
		}
		color := map[string]string{Better: green, Worse: red}[ch.Verdict]
		t.add(map[int]string{3: color, 5: color},
			ch.name(), spread(ch.Old), spread(ch.New), ch.percent(), ch.chance(), ch.Verdict)
	}
	if len(t.rows) > 1 {
		t.write(b, style)
	}
	if same > 0 {
		fmt.Fprintf(b, "%s: no difference that the samples show in %s\n", title, plural(same, "cell"))
	}
	if len(t.rows) > 1 || same > 0 {
		b.WriteString("\n")
	}
}

// name is that of the benchmark line.
func (c Change) name() string {
	cell := Cell{Suite: c.Suite, Workload: c.Workload, Params: c.Params}
	return c.Suite + " " + cell.benchName(c.Engine, 1)
}

// spread prints a median and how far the values were from it.
func spread(s measure.Summary) string {
	if s.Median == 0 {
		return formatNumber(0)
	}
	off := max(s.Max-s.Median, s.Median-s.Min) / math.Abs(s.Median)
	return fmt.Sprintf("%s ±%3.0f %%", formatNumber(s.Median), 100*off)
}

func (c Change) percent() string {
	if c.Old.Median == 0 {
		return "-"
	}
	return fmt.Sprintf("%+.1f %%", 100*(c.Ratio-1))
}

func (c Change) chance() string {
	if c.P == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f", *c.P)
}

func (c *Comparison) writeSummary(b *strings.Builder) {
	fmt.Fprintf(b, "%d better, %d worse, %d the same", c.Count(Better), c.Count(Worse), c.Count(Same))
	if n := c.Count(Unclear); n > 0 {
		fmt.Fprintf(b, ", %d with too few samples to tell (measure with --pairs %d or more)", n, minPairs)
	}
	b.WriteString(".\n")
	for _, engine := range c.engines() {
		if ratio, n := c.mean(engine); n > 0 {
			fmt.Fprintf(b, "%s: rate %.2fx in the geometric mean of %s.\n", engine, ratio, plural(n, "cell"))
		}
	}
	if ranges := c.byRange(); ranges > 0 {
		fmt.Fprintf(b, "%s judged by smallest and largest value alone: a file of a version without samples.\n", plural(ranges, "line"))
	}
	for _, side := range []struct {
		name  string
		names []string
	}{{"old", c.OnlyOld}, {"new", c.OnlyNew}} {
		if len(side.names) > 0 {
			fmt.Fprintf(b, "only in the %s file: %s.\n", side.name, strings.Join(side.names, ", "))
		}
	}
}

// engines are those whose rates are compared, in the order of the file.
func (c *Comparison) engines() []string {
	var out []string
	seen := map[string]bool{}
	for _, ch := range c.Changes {
		if ch.Metric == measure.OpsPerS && !seen[ch.Engine] {
			seen[ch.Engine] = true
			out = append(out, ch.Engine)
		}
	}
	return out
}

// mean is the geometric mean of the ratios of an engine's rates.
func (c *Comparison) mean(engine string) (ratio float64, n int) {
	sum := 0.0
	for _, ch := range c.Changes {
		if ch.Engine == engine && ch.Metric == measure.OpsPerS && ch.Ratio > 0 {
			sum += math.Log(ch.Ratio)
			n++
		}
	}
	if n == 0 {
		return 0, 0
	}
	return math.Exp(sum / float64(n)), n
}

func (c *Comparison) byRange() int {
	n := 0
	for _, ch := range c.Changes {
		if ch.P == nil && ch.Verdict != Unclear {
			n++
		}
	}
	return n
}
