// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Words are the sentences below the tables of a suite.
func (r *Run) Words(layout Layout) []string {
	r.assessed()
	if layout.Summary != nil {
		return layout.Summary(r)
	}
	return r.Verdicts(layout, cmp.Or(layout.Subject, "ringside"))
}

// Verdicts says in words what the run found about one engine, one line for each section of the
// layout. The words follow from this run's ratios and their spread.
func (r *Run) Verdicts(layout Layout, engine string) []string {
	r.assessed()
	var out []string
	for _, sec := range r.sections(layout) {
		if line := sec.verdict(layout, engine); line != "" {
			out = append(out, sec.title+": "+line)
		}
	}
	return out
}

// findings are what a section says about one engine.
type findings struct {
	engine, against string
	pairs           int
	points          map[verdict][]string
	cpu, threads    []measure.Summary
	// computed are ratios of the rate of what was computed beside the operations.
	computed []measure.Summary
	// device are shares of what was read that came from the device, of all engines.
	device []measure.Summary
	// others are ratios of the rate to engines beside the cell's first one.
	others map[string][]measure.Summary
}

// verdict judges the engine in all cells of the section.
func (sec section) verdict(layout Layout, engine string) string {
	f := findings{engine: engine, points: map[verdict][]string{}, others: map[string][]measure.Summary{}}
	for _, c := range sec.cells {
		if s, ok := c.find(engine); ok && engine != c.Series[0].Engine {
			f.add(c, s, layout.Point(c))
		}
	}
	switch {
	case f.against == "":
		return ""
	case len(f.points[tooFew]) > 0:
		return fmt.Sprintf("too few pairs (%d) to tell a difference from noise; use --pairs %d or more", f.pairs, minPairs)
	}
	return f.sentence()
}

// add judges one cell.
func (f *findings) add(c Cell, s Series, point string) {
	ratio, ok := s.Ratio(c.Series[0], measure.OpsPerS)
	if !ok {
		return
	}
	f.against, f.pairs = c.Series[0].Engine, len(s.Samples)
	v := c.judge(s, c.Series[0], measure.OpsPerS)
	f.points[v] = append(f.points[v], describe(point, ratio, v))
	if sum, ok := s.Ratio(c.Series[0], measure.CPUUsPerOp); ok {
		f.cpu = append(f.cpu, sum)
	}
	if sum, ok := s.Ratio(c.Series[0], measure.UnitsPerS); ok {
		f.computed = append(f.computed, sum)
	}
	if sum, ok := s.Ratio(c.Series[0], measure.Threads); ok {
		f.threads = append(f.threads, sum)
	}
	for _, series := range c.Series {
		if sum, ok := series.Summary(DeviceShare); ok {
			f.device = append(f.device, sum)
		}
	}
	for _, other := range c.Series[1:] {
		if sum, ok := s.Ratio(other, measure.OpsPerS); ok && other.Engine != f.engine {
			f.others[other.Engine] = append(f.others[other.Engine], sum)
		}
	}
}

func (c Cell) find(engine string) (Series, bool) {
	for _, s := range c.Series {
		if s.Engine == engine {
			return s, true
		}
	}
	return Series{}, false
}

// tally is how two engines compare in the cells that have both.
type tally struct {
	points map[verdict][]string
	// same are the ratios of rates that are alike or undecided.
	same  []measure.Summary
	pairs int
}

func tallyOf(cells []Cell, engine, base string, point func(Cell) string) tally {
	t := tally{points: map[verdict][]string{}}
	for _, c := range cells {
		s, other, ok := c.both(engine, base)
		if !ok {
			continue
		}
		ratio, ok := s.Ratio(other, measure.OpsPerS)
		if !ok {
			continue
		}
		t.pairs = len(s.Samples)
		v := c.judge(s, other, measure.OpsPerS)
		t.points[v] = append(t.points[v], describe(point(c), ratio, v))
		if v == undecided || v == alike {
			t.same = append(t.same, ratio)
		}
	}
	return t
}

func describe(point string, ratio measure.Summary, v verdict) string {
	if v == faster || v == slower {
		return fmt.Sprintf("%s (%.2fx)", point, ratio.Median)
	}
	return point
}

func (f *findings) sentence() string {
	var parts []string
	if p := f.points[faster]; len(p) > 0 {
		parts = append(parts, fmt.Sprintf("%s is faster than %s at %s", f.engine, f.against, joinAnd(p)))
	}
	if p := f.points[slower]; len(p) > 0 {
		parts = append(parts, fmt.Sprintf("%s is slower than %s at %s", f.engine, f.against, joinAnd(p)))
	}
	if p := f.points[alike]; len(p) > 0 {
		parts = append(parts, "no difference at "+joinAnd(p))
	}
	if p := f.points[undecided]; len(p) > 0 {
		parts = append(parts, "not decided at "+joinAnd(p))
	}
	parts = append(parts, rangeWords("computation beside", f.computed)...)
	parts = append(parts, rangeWords("CPU per operation", f.cpu)...)
	if slices.ContainsFunc(f.threads, func(r measure.Summary) bool { return math.Abs(r.Median-1) > 0.2 }) {
		parts = append(parts, rangeWords("threads", f.threads)...)
	}
	for _, name := range slices.Sorted(maps.Keys(f.others)) {
		parts = append(parts, rangeWords("ops/s vs "+name, f.others[name])...)
	}
	if len(f.device) > 0 {
		parts = append(parts, "read from the device "+percentRange(f.device))
	}
	return strings.Join(parts, "; ")
}

// rangeWords tells the smallest and largest median of several ratios.
func rangeWords(what string, ratios []measure.Summary) []string {
	if len(ratios) == 0 {
		return nil
	}
	low, high := ratios[0].Median, ratios[0].Median
	for _, r := range ratios {
		low, high = min(low, r.Median), max(high, r.Median)
	}
	if fmt.Sprintf("%.2f", low) == fmt.Sprintf("%.2f", high) {
		return []string{fmt.Sprintf("%s %.2fx", what, low)}
	}
	return []string{fmt.Sprintf("%s %.2fx to %.2fx", what, low, high)}
}

// percentRange tells the smallest and largest value of several shares.
func percentRange(shares []measure.Summary) string {
	low, high := shares[0].Min, shares[0].Max
	for _, s := range shares {
		low, high = min(low, s.Min), max(high, s.Max)
	}
	if formatPercent(low) == formatPercent(high) {
		return formatPercent(low)
	}
	return formatPercent(low) + " to " + formatPercent(high)
}
