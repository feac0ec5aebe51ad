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
)

// These are the verdicts of a change.
const (
	Better = "better"
	Worse  = "worse"
	// Same means that the samples show no difference.
	Same = "same"
	// Unclear means that there are too few samples for a verdict.
	Unclear = "unclear"
)

// Comparison compares two result files.
type Comparison struct {
	// Old and New are the circumstances. Differs has those that differ.
	Old     Host         `json:"old"`
	New     Host         `json:"new"`
	Differs []Difference `json:"differs"`
	Changes []Change     `json:"changes"`
	// OnlyOld and OnlyNew are the results that only one of the files has.
	OnlyOld []string `json:"only_old,omitempty"`
	OnlyNew []string `json:"only_new,omitempty"`
	// OldNotes and NewNotes are the notes of each run.
	OldNotes []string `json:"old_notes,omitempty"`
	NewNotes []string `json:"new_notes,omitempty"`
}

// Difference is a circumstance that differs between the files.
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
	// Ratio is the new median divided by the old one, or 0 if the old one is 0.
	Ratio float64 `json:"ratio"`
	// N are the numbers of starts. P is the probability of samples that differ so much without a true
	// difference (t-test of the logarithms of the starts, with the drift between the files). P is nil if
	// there are too few, or values that are not positive.
	N       [2]int   `json:"n"`
	P       *float64 `json:"p,omitempty"`
	Verdict string   `json:"verdict"`

	before, after []float64 // mean logarithms of the starts
	moreIsBetter  bool
}

// Compare compares two result files. All changes are judged together, as the claims of a run are: of
// two files of one binary 19 of 20 show no difference at all.
func Compare(before, after *Document) *Comparison {
	c := &Comparison{
		Old: before.Host, New: after.Host, Differs: differences(before.Host, after.Host), Changes: []Change{},
		OldNotes: before.Notes, NewNotes: after.Notes,
	}
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
	c.judge()
	return c
}

// key identifies the measurement. It excludes the device, which is a circumstance.
func (r Result) key() string {
	cell := Cell{Suite: r.Suite, Workload: r.Workload, Params: r.Params}
	return r.Suite + " " + cell.benchName(r.Engine, 1)
}

func changes(before, after Result) []Change {
	var out []Change
	for _, m := range columns {
		if m.use&(moreIsBetter|lessIsBetter) == 0 {
			continue
		}
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
		ch.before, ch.after = before.starts(m.metric), after.starts(m.metric)
		ch.N, ch.moreIsBetter = [2]int{len(ch.before), len(ch.after)}, m.use&moreIsBetter != 0
		out = append(out, ch)
	}
	return out
}

// starts returns the mean logarithm of a metric after each start, or nil without samples.
func (r Result) starts(metric string) (out []float64) {
	samples, err := r.restore()
	if err != nil || len(r.Samples[metric]) == 0 {
		return nil
	}
	for _, values := range (Series{Samples: samples}).logs(metric) {
		if len(values) > 0 {
			m, _, _ := trimmed(values, trimmedPairs)
			out = append(out, m)
		}
	}
	return out
}

// minEffect is the smallest reported change.
const minEffect = 0.03

// judge sets the verdicts.
func (c *Comparison) judge() {
	var variances []float64
	shifts := map[string][]float64{} // by metric
	for _, ch := range c.Changes {
		if shift, v, ok := ch.shift(); ok {
			shifts[ch.Metric] = append(shifts[ch.Metric], shift)
			variances = append(variances, v)
		}
	}
	prior := 0.0
	if len(variances) > 0 {
		prior = measure.Summarize(variances).Median
	}
	chances := make([]float64, len(c.Changes))
	for i := range c.Changes {
		ch := &c.Changes[i]
		chances[i] = 1
		shift, own, ok := ch.shift()
		if !ok {
			continue
		}
		df := float64(len(ch.before) + len(ch.after) - 2)
		v := max(own, (df*own+priorDF*prior)/(df+priorDF))
		off := drift(shifts[ch.Metric])
		deviation := math.Sqrt(v*(1/float64(len(ch.before))+1/float64(len(ch.after))) + off*off)
		chances[i] = chance(math.Abs(shift)-math.Log1p(minEffect), deviation, df+priorDF)
		ch.P = &chances[i]
	}
	for i, told := range discoveries(chances) {
		ch := &c.Changes[i]
		switch shift, _, _ := ch.shift(); {
		case told && ch.P != nil:
			ch.Verdict = ch.direction(shift)
		case ch.P == nil && ch.Old.Min+ch.New.Min > 0:
			ch.Verdict = Unclear
		default:
			ch.Verdict = Same
		}
	}
}

// minDrift is the least assumed drift between two files of one binary. They were measured at
// different times, however similar their rounds are.
const minDrift = 0.02

// drift estimates how much the cells of two files differ without a cause of their own. It is the
// standard deviation of their shifts about the median, estimated by the median absolute deviation.
func drift(shifts []float64) float64 {
	if len(shifts) == 0 {
		return minDrift
	}
	middle := measure.Summarize(shifts).Median
	var off []float64
	for _, s := range shifts {
		off = append(off, math.Abs(s-middle))
	}
	return max(minDrift, 1.4826*measure.Summarize(off).Median)
}

// shift returns the difference of the mean logarithms, and the mean variance of one sample. It
// returns false if there are too few samples or values without a logarithm.
func (c *Change) shift() (shift, spread float64, ok bool) {
	if len(c.before) < minStarts || len(c.after) < minStarts || c.Old.Min <= 0 || c.New.Min <= 0 {
		return 0, 0, false
	}
	return mean(c.after) - mean(c.before), (variance(c.before) + variance(c.after)) / 2, true
}

// direction returns the verdict about a change upwards or downwards.
func (c *Change) direction(shift float64) string {
	if shift > 0 == c.moreIsBetter {
		return Better
	}
	return Worse
}

// differences returns the circumstances that differ.
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

// Count returns the number of changes with the verdict.
func (c *Comparison) Count(verdict string) int {
	n := 0
	for _, ch := range c.Changes {
		if ch.Verdict == verdict {
			n++
		}
	}
	return n
}

// Disjoint returns an error that names the workloads of both files if they have no measurement in
// common.
func (c *Comparison) Disjoint(before, after string) error {
	if len(c.Changes) > 0 {
		return nil
	}
	has := func(names []string) string { return cmp.Or(workloads(names), "nothing") }
	return fmt.Errorf("%s and %s have no measurement in common: the first has %s, the second %s; compare two runs of the same command",
		before, after, has(c.OnlyOld), has(c.OnlyNew))
}

// WriteText writes the changes, a table for each metric, and a summary. It writes lines without a
// difference, and long lists of measurements that only one file has, only if all is true.
func (c *Comparison) WriteText(w io.Writer, all bool, style Style) error {
	var b strings.Builder
	for _, d := range c.Differs {
		fmt.Fprintf(&b, "%-14s %s -> %s\n", d.Name+":", cmp.Or(d.Old, "(none)"), cmp.Or(d.New, "(none)"))
	}
	for _, side := range []struct {
		name  string
		notes []string
	}{{"old", c.OldNotes}, {"new", c.NewNotes}} {
		for _, n := range side.notes {
			fmt.Fprintf(&b, "%-14s %s\n", side.name+" run:", n)
		}
	}
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	for _, m := range columns {
		if m.use&(moreIsBetter|lessIsBetter) != 0 {
			c.writeMetric(&b, m.metric, m.title, all, style)
		}
	}
	c.writeSummary(&b, all)
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *Comparison) writeMetric(b *strings.Builder, metric, title string, all bool, style Style) {
	t := table{}
	t.add(nil, title, "old", "new", "change", "p", "n", "")
	same := 0
	for _, ch := range c.Changes {
		switch {
		case ch.Metric != metric:
			continue
		case ch.Verdict == Same && !all:
			same++
			continue
		}
		color := map[string]string{Better: Green, Worse: Red}[ch.Verdict]
		t.add(map[int]string{3: color, 6: color},
			ch.name(), spread(ch.Old), spread(ch.New), ch.percent(), ch.chance(), ch.samples(), ch.Verdict)
	}
	if len(t.rows) > 1 {
		t.write(b, style)
	}
	if same > 0 {
		fmt.Fprintf(b, "%s: no difference that the samples show in %s\n", title, counted("cell")(same))
	}
	if len(t.rows) > 1 || same > 0 {
		b.WriteString("\n")
	}
}

// name returns the name of the benchmark line.
func (c Change) name() string {
	cell := Cell{Suite: c.Suite, Workload: c.Workload, Params: c.Params}
	return c.Suite + " " + cell.benchName(c.Engine, 1)
}

// spread formats a median and the spread of the values about it.
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
	return fmt.Sprintf("%.2g", *c.P)
}

func (c Change) samples() string { return fmt.Sprintf("%d+%d", c.N[0], c.N[1]) }

// fewNames is the largest number of measurements in only one file that are listed without --all.
const fewNames = 4

// workloads returns the suites and workloads of names of measurements.
func workloads(names []string) string {
	var out []string
	for _, n := range names {
		n, _, _ = strings.Cut(n, "/")
		if !slices.Contains(out, n) {
			out = append(out, n)
		}
	}
	return joinAnd(out)
}

func (c *Comparison) writeSummary(b *strings.Builder, all bool) {
	fmt.Fprintf(b, "%d better, %d worse, %d the same", c.Count(Better), c.Count(Worse), c.Count(Same))
	if n := c.Count(Unclear); n > 0 {
		fmt.Fprintf(b, ", %d with too few samples to tell (measure with --pairs %d or more)", n, minStarts)
	}
	b.WriteString(".\n")
	for _, engine := range c.engines() {
		if ratio, n := c.mean(engine); n > 0 {
			fmt.Fprintf(b, "%s: rate %.2fx in the geometric mean of %s.\n", engine, ratio, counted("cell")(n))
		}
	}
	for _, side := range []struct {
		name  string
		names []string
	}{{"old", c.OnlyOld}, {"new", c.OnlyNew}} {
		switch n := len(side.names); {
		case n == 0:
		case n <= fewNames:
			fmt.Fprintf(b, "only in the %s file: %s.\n", side.name, strings.Join(side.names, ", "))
		case !all:
			fmt.Fprintf(b, "only in the %s file: %d measurements of %s; --all lists them.\n", side.name, n, workloads(side.names))
		default:
			fmt.Fprintf(b, "only in the %s file:\n  %s\n", side.name, strings.Join(side.names, "\n  "))
		}
	}
}

// engines returns the engines whose rates are compared, in the order of the file.
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

// mean returns the geometric mean of the ratios of an engine's rates.
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
