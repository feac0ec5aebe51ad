// SPDX-License-Identifier: MIT

package htmlreport

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// figuresOf returns the figures of a suite: ratios of engines, curves along each axis, and
// latencies.
func figuresOf(run *report.Run, claims []report.Claim) (out []figure) {
	for _, part := range choicesOf(run.Cells[0].Suite, claims) {
		out = append(out, ratioFigure(part)...)
	}
	for _, journal := range []string{"rollback", "persist", "wal"} {
		out = append(out, speedFigure(run, journal)...)
	}
	for _, g := range groupsOf(run) {
		for _, m := range []lineMetric{
			{measure.OpsPerS, "operations per second"}, {measure.CPUUsPerOp, "CPU µs per operation"},
		} {
			out = append(out, lineFigure(g, m)...)
		}
		out = append(out, latencyFigure(g)...)
	}
	return out
}

// numbered is a claim with its number in the run.
type numbered struct {
	report.Claim
	n int
}

// choicesOf returns the claims of a suite by choice.
func choicesOf(suite string, claims []report.Claim) (out [][]numbered) {
	for i, c := range claims {
		if c.Suite != suite {
			continue
		}
		if n := len(out); n == 0 || out[n-1][0].Use != c.Use || out[n-1][0].Instead != c.Instead {
			out = append(out, nil)
		}
		out[len(out)-1] = append(out[len(out)-1], numbered{c, i})
	}
	return out
}

// axes are the parameters along which workloads are measured, with their units.
var axes = []struct{ param, unit string }{
	{"connections", "connections"}, {"goroutines", "goroutines"}, {"active", "active descriptors"},
	{"databases", "databases"}, {"batch", "SQEs in a batch"},
}

// group is a set of cells that differ in only one number.
type group struct {
	title, unit string
	x           []float64
	cells       []report.Cell
}

// groupsOf groups cells that form a line of two points or more.
func groupsOf(run *report.Run) []group {
	var groups []group
	index := map[string]int{}
	for _, c := range run.Cells {
		axis, unit, ok := axisOf(run, c)
		if !ok {
			continue
		}
		title := c.Words(axis)
		key := c.Suite + axis + title
		i, known := index[key]
		if !known {
			i = len(groups)
			index[key] = i
			groups = append(groups, group{title: title, unit: unit})
		}
		x, _ := c.Params.Number(axis)
		groups[i].add(x, c)
	}
	var out []group
	for _, g := range groups {
		if len(g.cells) > 1 {
			out = append(out, g)
		}
	}
	return out
}

// add keeps the cells in the order of the axis, with one cell per value.
func (g *group) add(x float64, c report.Cell) {
	at := 0
	for at < len(g.x) && g.x[at] < x {
		at++
	}
	if at < len(g.x) && g.x[at] == x {
		return
	}
	g.x = append(g.x[:at], append([]float64{x}, g.x[at:]...)...)
	g.cells = append(g.cells[:at], append([]report.Cell{c}, g.cells[at:]...)...)
}

// axisOf returns the parameter that has several values in cells like c.
func axisOf(run *report.Run, c report.Cell) (param, unit string, ok bool) {
	for _, a := range axes {
		own, numeric := c.Params.Number(a.param)
		for _, other := range run.Cells {
			if x, ok := other.Params.Number(a.param); ok && numeric && x != own && other.Words(a.param) == c.Words(a.param) {
				return a.param, a.unit, true
			}
		}
	}
	return "", "", false
}

// mostEngines is how many engines a figure shows. The tables have all.
const mostEngines = 4

// shown returns the engines of the figures: the baseline, ringside's, then others, in their order.
func shown(engines []string) []string {
	if len(engines) <= mostEngines {
		return engines
	}
	rest := slices.Clone(engines[1:])
	slices.SortStableFunc(rest, func(a, b string) int {
		foreign := func(e string) int { return 1 - min(1, strings.Count(e, "ringside")) }
		return cmp.Compare(foreign(a), foreign(b))
	})
	return append([]string{engines[0]}, rest[:mostEngines-1]...)
}

// engines returns the shown engines of the cells.
func (g group) engines() []string {
	var out []string
	seen := map[string]bool{}
	for _, c := range g.cells {
		for _, s := range c.Series {
			if !seen[s.Engine] {
				seen[s.Engine] = true
				out = append(out, s.Engine)
			}
		}
	}
	return shown(out)
}

// summary returns an engine's metric in a cell.
func summary(c report.Cell, engine, metric string) (measure.Summary, bool) {
	s, _ := c.Find(engine)
	return s.Summary(metric)
}

// name returns the title of a figure's group. It is never empty.
func (g group) name() string { return cmp.Or(g.title, g.unit) }
