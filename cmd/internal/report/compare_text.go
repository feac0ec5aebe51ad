// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

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
