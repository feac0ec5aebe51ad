// SPDX-License-Identifier: MIT

package htmlreport

import (
	"fmt"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// ratioFigure draws the ratios of one choice, a line for each cell: the median as a point, the pairs'
// range as a bar. Right of 1 is faster.
func ratioFigure(duels []report.Duel) (*figure, error) {
	duels = slices.DeleteFunc(slices.Clone(duels), func(d report.Duel) bool { return d.Rate.Min <= 0 }) // no place on the axis
	if len(duels) == 0 {
		return nil, nil
	}
	p := newPlot()
	p.X.Scale = plot.LogScale{}
	p.X.Label.Text = "rate, times that of " + duels[0].Instead
	low, high := 0.9, 1.1
	var names, said []string
	for n := range duels {
		d := duels[len(duels)-1-n] // the first one stands above
		names = append(names, d.Point)
		said = append(said, fmt.Sprintf("%s %.2f", d.Point, d.Rate.Median))
		low, high = min(low, d.Rate.Min), max(high, d.Rate.Max)
		if err := addRange(p, float64(n), d.Rate, duelColor(d)); err != nil {
			return nil, err
		}
	}
	one, err := plotter.NewLine(plotter.XYs{{X: 1, Y: -0.5}, {X: 1, Y: float64(len(duels)) - 0.5}})
	if err != nil {
		return nil, err
	}
	one.Color, one.Width = grey, vg.Points(1)
	p.Add(one)
	p.NominalY(names...)
	p.X.Min, p.X.Max, p.X.Tick.Marker = low/1.05, high*1.05, decadeTicks{"x"}
	caption := fmt.Sprintf("%s instead of %s: ratio of the rates (right of 1: faster)", duels[0].Use, duels[0].Instead)
	height := vg.Length(len(duels))*0.6*vg.Centimeter + 2*vg.Centimeter
	svg, err := inline(p, height, caption+". "+strings.Join(said, "; ")+".")
	return &figure{Caption: caption, Alt: caption, SVG: svg}, err
}

// duelColor tells the verdict, which the words beside the picture tell too.
func duelColor(d report.Duel) int {
	switch d.Verdict {
	case report.Better:
		return 3 // green
	case report.Worse:
		return 2 // red
	}
	return 0
}

// addRange draws a median with its range, lying.
func addRange(p *plot.Plot, y float64, s measure.Summary, color int) error {
	bar, err := plotter.NewLine(plotter.XYs{{X: s.Min, Y: y}, {X: s.Max, Y: y}})
	if err != nil {
		return err
	}
	bar.Color, bar.Width = colorOf(color), vg.Points(2)
	dot, err := plotter.NewScatter(plotter.XYs{{X: s.Median, Y: y}})
	if err != nil {
		return err
	}
	dot.Color, dot.Shape, dot.Radius = colorOf(color), draw.CircleGlyph{}, vg.Points(3.5)
	p.Add(bar, dot)
	return nil
}

// speedFigure draws SQLite's speed tests in one journal mode: how long each took relative to the
// default VFS, a group of bars for each test. It returns nil where they were not measured.
func speedFigure(run *report.Run, journal string) (*figure, error) {
	var tests []report.Cell
	for _, c := range run.Cells {
		if _, ok := summary(c, "default-"+journal, measure.NsPerOp); ok && c.Params["test"] != nil {
			tests = append(tests, c)
		}
	}
	if len(tests) == 0 {
		return nil, nil
	}
	var engines []string
	for _, s := range tests[0].Series {
		if name, ok := strings.CutSuffix(s.Engine, "-"+journal); ok && name != "default" {
			engines = append(engines, s.Engine)
		}
	}
	p := newPlot()
	p.Y.Label.Text = "time, default VFS = 1"
	var names, said []string
	for _, c := range tests {
		names = append(names, fmt.Sprint(c.Params["test"]))
	}
	bar := 10 * vg.Centimeter / vg.Length(len(tests)*(len(engines)+1))
	for i, engine := range engines {
		values := make(plotter.Values, len(tests))
		for n, c := range tests {
			own, _ := summary(c, engine, measure.NsPerOp)
			base, _ := summary(c, "default-"+journal, measure.NsPerOp)
			values[n] = own.Median / base.Median
		}
		said = append(said, fmt.Sprintf("%s from %.2f to %.2f", engine, slices.Min(values), slices.Max(values)))
		bars, err := plotter.NewBarChart(values, bar)
		if err != nil {
			return nil, err
		}
		bars.Color, bars.LineStyle.Width = colorOf(i+1), 0
		bars.Offset = bar * (vg.Length(i) - vg.Length(len(engines)-1)/2)
		p.Add(bars)
		p.Legend.Add(engine, bars)
	}
	one, err := plotter.NewLine(plotter.XYs{{X: -0.5, Y: 1}, {X: float64(len(tests)) - 0.5, Y: 1}})
	if err != nil {
		return nil, err
	}
	one.Width = vg.Points(1)
	p.Add(one)
	p.NominalX(names...)
	p.X.Label.Text = "test"
	p.Y.Min, p.Y.Max = 0, p.Y.Max*1.3 // room for the legend
	caption := fmt.Sprintf("SQLite's speed tests, %s, synchronous=FULL: time relative to the default VFS (below 1: faster)", journal)
	svg, err := inline(p, 8*vg.Centimeter, caption+". "+strings.Join(said, "; ")+".")
	return &figure{Caption: caption, Alt: caption, SVG: svg}, err
}
