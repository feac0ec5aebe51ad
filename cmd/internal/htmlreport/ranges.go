// SPDX-License-Identifier: MIT

package htmlreport

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// ranges is a table whose rows have a bar on a common logarithmic axis. Its labels are text of the
// page, so they have the page's text size on every screen.
type ranges struct {
	What, Axis, Value string // headings of the columns
	Ticks             []tick
	Zero              float64 // position of the ratio 1 in percent; negative if there is none
	Rows              []rangeRow
}

// tick is a value of the axis and its position in percent.
type tick struct {
	At   float64
	Text string
}

// rangeRow is a row of the table.
type rangeRow struct {
	ID    string // anchor, may be empty
	Name  string
	Text  string
	Range string // may be empty
	// Samples are the ratios of which the range is made; may be empty.
	Samples string
	Marks   []mark
}

// mark is a median with its range, in percent of the axis.
type mark struct {
	Low, Median, High float64
	Color             int
	Class             string // of the verdict
}

// logAxis is a logarithmic axis between two bounds.
type logAxis struct{ low, high float64 }

// include extends the axis to the values of s.
func (a *logAxis) include(s measure.Summary) {
	if a.low == 0 {
		a.low, a.high = s.Min, s.Max
	}
	a.low, a.high = min(a.low, s.Min), max(a.high, s.Max)
}

// place returns the position of a value in percent, with a margin on both sides.
func (a logAxis) place(v float64) float64 {
	if a.high <= a.low {
		return 50
	}
	return math.Round(1000*(4+92*math.Log(v/a.low)/math.Log(a.high/a.low))) / 1000
}

func (a logAxis) mark(s measure.Summary, color int, class string) mark {
	return mark{a.place(s.Min), a.place(s.Median), a.place(s.Max), color, class}
}

// ticks returns at most five ticks at 1, 2 and 5 times powers of ten.
func (a logAxis) ticks(text func(v float64) string) []tick {
	var out []tick
	for _, steps := range [][]float64{{1, 1.2, 1.5, 2, 3, 5, 7}, {1, 2, 5}, {1}} {
		out = nil
		for p := math.Floor(math.Log10(a.low)); p <= math.Log10(a.high); p++ {
			for _, m := range steps {
				if v := m * math.Pow(10, p); v >= a.low && v <= a.high*1.0001 {
					out = append(out, tick{a.place(v), text(v)})
				}
			}
		}
		if len(out) <= 5 {
			return out
		}
	}
	every := (len(out) + 4) / 5
	var some []tick
	for i := 0; i < len(out); i += every {
		some = append(some, out[i])
	}
	return some
}

// ratioFigure returns the intervals of one choice, with a row for each cell.
func ratioFigure(claims []numbered) []figure {
	claims = slices.DeleteFunc(slices.Clone(claims), func(c numbered) bool { return c.Rate.Low <= 0 }) // a logarithmic axis needs positive values
	if len(claims) == 0 {
		return nil
	}
	axis := logAxis{0.9, 1.1}
	for _, c := range claims {
		axis.include(bounds(c.Rate))
	}
	r := &ranges{What: "work", Axis: "rate, times that of " + claims[0].Instead, Value: "ratio (95 % interval)", Ticks: axis.ticks(times), Zero: axis.place(1)}
	for _, c := range claims {
		class := map[string]string{report.Gain: "yes", report.Loss: "no"}[c.Kind]
		var samples []string
		for _, ratio := range c.Rate.Starts {
			samples = append(samples, fmt.Sprintf("%.2f", ratio))
		}
		r.Rows = append(r.Rows, rangeRow{
			Samples: strings.Join(samples, ", "),
			ID:      fmt.Sprintf("%s-%d", c.Suite, c.n), Name: c.Point, Marks: []mark{axis.mark(bounds(c.Rate), 0, class)},
			Text: fmt.Sprintf("%.2fx", c.Rate.Ratio), Range: fmt.Sprintf("%.2f–%.2f", c.Rate.Low, c.Rate.High),
		})
	}
	return []figure{{Caption: fmt.Sprintf("%s instead of %s: rates. Right of the line is faster.", claims[0].Use, claims[0].Instead), Ranges: r}}
}

// bounds returns an interval as a range of an axis.
func bounds(i report.Interval) measure.Summary {
	return measure.Summary{Median: i.Ratio, Min: i.Low, Max: i.High}
}

// speedFigure returns SQLite's speed tests in one journal mode: the time of each relative to the
// default VFS.
func speedFigure(run *report.Run, journal string) []figure {
	axis := logAxis{0.9, 1.1}
	type test struct {
		cell   report.Cell
		ratios []measure.Summary
	}
	var tests []test
	var engines []string
	for _, c := range run.Cells {
		base, ok := c.Find("default-" + journal)
		if !ok || c.Params["test"] == nil {
			continue
		}
		one := test{cell: c}
		var names []string
		for _, s := range c.Series {
			name, ok := strings.CutSuffix(s.Engine, "-"+journal)
			ratio, known := s.Ratio(base, measure.NsPerOp)
			if !ok || name == "default" || !known || ratio.Min <= 0 {
				continue
			}
			names, one.ratios = append(names, s.Engine), append(one.ratios, ratio)
			axis.include(ratio)
		}
		if engines == nil {
			engines = names
		}
		if slices.Equal(engines, names) && len(names) > 0 {
			tests = append(tests, one)
		}
	}
	if len(tests) == 0 {
		return nil
	}
	r := &ranges{What: "test", Axis: "time, times that of the default VFS", Value: "median", Ticks: axis.ticks(times), Zero: axis.place(1)}
	for _, one := range tests {
		row := rangeRow{Name: fmt.Sprint(one.cell.Params["test"])}
		var medians []string
		for i, ratio := range one.ratios {
			row.Marks = append(row.Marks, axis.mark(ratio, i+1, ""))
			medians = append(medians, fmt.Sprintf("%.2fx", ratio.Median))
		}
		row.Text = strings.Join(medians, ", ")
		r.Rows = append(r.Rows, row)
	}
	return []figure{{
		Caption: fmt.Sprintf("SQLite's speed tests, %s, synchronous=FULL. Left of the line is faster.", journal),
		Legend:  legends(engines), Ranges: r,
	}}
}

// times formats a ratio.
func times(v float64) string { return short(v) + "x" }

// duration formats microseconds with three digits, in a suitable unit.
func duration(us float64) string {
	switch {
	case us >= 999.5e3:
		return trim(us/1e6) + " s"
	case us >= 999.5:
		return trim(us/1e3) + " ms"
	}
	return trim(us) + " µs"
}

// latencyFigure returns p50, p99 and the maximum latency of the group's cell with the highest
// concurrency.
func latencyFigure(g group) []figure {
	last := len(g.cells) - 1
	metrics := []struct{ metric, name string }{{measure.P50Us, "p50"}, {measure.P99Us, "p99"}, {measure.MaxUs, "largest"}}
	axis := logAxis{}
	var engines []string
	for _, name := range g.engines() {
		s, ok := g.cells[last].Find(name)
		all := ok
		for _, m := range metrics {
			sum, ok := s.Summary(m.metric)
			if all = all && ok && sum.Min > 0; all {
				axis.include(sum)
			}
		}
		if all {
			engines = append(engines, s.Engine)
		}
	}
	if len(engines) == 0 {
		return nil
	}
	r := &ranges{What: "latency", Axis: "time", Value: "median", Ticks: axis.ticks(duration), Zero: -1}
	for _, m := range metrics {
		for _, engine := range engines {
			sum, _ := summary(g.cells[last], engine, m.metric)
			color := slices.Index(g.engines(), engine) // as in the curves
			r.Rows = append(r.Rows, rangeRow{Name: m.name + " " + engine, Text: duration(sum.Median), Marks: []mark{axis.mark(sum, color, "")}})
		}
	}
	return []figure{{Caption: fmt.Sprintf("%s: latency at %s %s", g.name(), short(g.x[last]), g.unit), Ranges: r}}
}

// legends gives each engine its colour. The first colour is the baseline's.
func legends(engines []string) (out []legend) {
	for i, e := range engines {
		out = append(out, legend{i + 1, e})
	}
	return out
}
