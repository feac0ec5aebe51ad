// SPDX-License-Identifier: MIT

package htmlreport

import (
	"fmt"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

type lineMetric struct{ metric, words string }

// lineFigure draws a metric along the axis of the group: medians as a line, smallest and largest as
// a band. It returns nil where there is nothing to draw.
func lineFigure(g group, m lineMetric) (*figure, error) {
	p := newPlot()
	p.X.Label.Text, p.Y.Label.Text = g.unit, m.words
	p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, at(g.x)
	p.Y.Tick.Marker = shortTicks{}
	var said []string
	for i, engine := range g.engines() {
		var pts []point
		for n, c := range g.cells {
			if s, ok := summary(c, engine, m.metric); ok {
				pts = append(pts, point{g.x[n], s})
			}
		}
		if len(pts) < 2 {
			continue
		}
		if err := addLine(p, engine, i, pts); err != nil {
			return nil, err
		}
		first, last := pts[0], pts[len(pts)-1]
		said = append(said, fmt.Sprintf("%s from %s at %s to %s at %s",
			engine, short(first.y.Median), short(first.x), short(last.y.Median), short(last.x)))
	}
	if len(said) == 0 {
		return nil, nil
	}
	p.Legend.Left = true
	p.X.Min, p.X.Max = g.x[0]/1.1, g.x[len(g.x)-1]*1.1        // room for the words below
	p.Y.Min, p.Y.Max = 0, p.Y.Max*(1+0.09*float64(len(said))) // room for the legend
	caption := fmt.Sprintf("%s: %s by %s", g.name(), m.words, g.unit)
	svg, err := inline(p, 9*vg.Centimeter, caption+". "+strings.Join(said, "; ")+".")
	return &figure{Caption: caption, Alt: caption, SVG: svg}, err
}

// point is a value with its spread.
type point struct {
	x float64
	y measure.Summary
}

// addLine draws a line with a band.
func addLine(p *plot.Plot, name string, i int, pts []point) error {
	medians := make(plotter.XYs, len(pts))
	band := make(plotter.XYs, 2*len(pts))
	for n, pt := range pts {
		medians[n] = plotter.XY{X: pt.x, Y: pt.y.Median}
		band[n] = plotter.XY{X: pt.x, Y: pt.y.Max}
		band[2*len(pts)-1-n] = plotter.XY{X: pt.x, Y: pt.y.Min}
	}
	area, err := plotter.NewPolygon(band)
	if err != nil {
		return err
	}
	area.Color, area.LineStyle.Width = faint(colorOf(i)), 0
	line, dots, err := plotter.NewLinePoints(medians)
	if err != nil {
		return err
	}
	line.Color, line.Width = colorOf(i), vg.Points(1.8)
	if i == 0 {
		line.Dashes = []vg.Length{vg.Points(5), vg.Points(2)}
	}
	dots.Color, dots.Shape, dots.Radius = colorOf(i), draw.CircleGlyph{}, vg.Points(2.2)
	p.Add(area, line, dots)
	p.Legend.Add(name, line, dots)
	return nil
}

// latencyFigure draws p50, p99 and maximum of the group's cell with the most at once, on a logarithmic
// axis.
func latencyFigure(g group) (*figure, error) {
	last := len(g.cells) - 1
	p := newPlot()
	p.Y.Label.Text = "µs"
	p.Y.Scale = plot.LogScale{}
	metrics := []string{measure.P50Us, measure.P99Us, measure.MaxUs}
	low, high := 0.0, 0.0
	var said []string
	for i, engine := range g.engines() {
		var pts []point
		for n, metric := range metrics {
			if s, ok := summary(g.cells[last], engine, metric); ok && s.Min > 0 {
				pts = append(pts, point{float64(n), s})
				if low == 0 {
					low = s.Min
				}
				low, high = min(low, s.Min), max(high, s.Max)
			}
		}
		if len(pts) < len(metrics) {
			continue
		}
		if err := addLine(p, engine, i, pts); err != nil {
			return nil, err
		}
		said = append(said, fmt.Sprintf("%s p50 %s, p99 %s, largest %s",
			engine, short(pts[0].y.Median), short(pts[1].y.Median), short(pts[2].y.Median)))
	}
	if len(said) == 0 {
		return nil, nil
	}
	p.NominalX("p50", "p99", "max")
	p.X.Min, p.X.Max = -0.2, 2.2
	p.Y.Min, p.Y.Max, p.Y.Tick.Marker = low/1.2, high*1.2, decadeTicks{}
	p.Legend.Left = true
	caption := fmt.Sprintf("%s: latency at %s %s, logarithmic", g.name(), short(g.x[last]), g.unit)
	svg, err := inline(p, 9*vg.Centimeter, caption+". "+strings.Join(said, "; ")+" µs.")
	return &figure{Caption: caption, Alt: caption, SVG: svg}, err
}
