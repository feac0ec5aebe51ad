// SPDX-License-Identifier: MIT

package htmlreport

import (
	"fmt"
	"math"
	"strings"
)

// fewestPoints is the minimum number of points of a curve. Fewer points are in the ratios above.
const fewestPoints = 3

// These are the sizes of a picture and of the margins around its curves, in units of its view box.
// On a phone that is 360 pixels wide its text is as large as that of the page.
const (
	curveWidth, curveHeight = 360.0, 230.0
	leftRoom, bottomRoom    = 44.0, 38.0
	rightRoom, topRoom      = 14.0, 12.0
)

// curves is a picture of a metric along one axis.
type curves struct {
	Alt           string
	Width, Height float64
	Left, Right   float64 // ends of the horizontal axis
	Bottom        float64
	Unit, Words   string
	X, Y          []tick // positions in units of the view box
	Lines         []curve
}

// curve is an engine's line: medians, and the band from minimum to maximum.
type curve struct {
	Color        int
	Median, Band string // points
	Dots         [][2]float64
}

type lineMetric struct{ metric, words string }

// lineFigure draws a metric along the axis of the group.
func lineFigure(g group, m lineMetric) []figure {
	if len(g.x) < fewestPoints {
		return nil
	}
	c := &curves{Width: curveWidth, Height: curveHeight, Left: leftRoom, Right: curveWidth - rightRoom, Bottom: curveHeight - bottomRoom, Unit: g.unit, Words: m.words}
	top := 0.0
	for _, cell := range g.cells {
		for _, engine := range g.engines() {
			if s, ok := summary(cell, engine, m.metric); ok {
				top = max(top, s.Max)
			}
		}
	}
	if top <= 0 || g.x[0] <= 0 {
		return nil
	}
	step := niceStep(top / 4)
	top = step * math.Ceil(top/step)
	for v := 0.0; v <= top*1.0001; v += step {
		c.Y = append(c.Y, tick{c.y(v, top), short(v)})
	}
	c.X = c.xTicks(g.x)
	f := figure{Caption: fmt.Sprintf("%s: %s by %s", g.name(), m.words, g.unit), Curves: c}
	var said []string
	for i, engine := range g.engines() {
		if line, ok := c.curve(g, engine, m.metric, top); ok {
			line.Color = i
			c.Lines = append(c.Lines, line)
			f.Legend = append(f.Legend, legend{i, engine})
			first, _ := summary(g.cells[0], engine, m.metric)
			last, _ := summary(g.cells[len(g.cells)-1], engine, m.metric)
			said = append(said, fmt.Sprintf("%s from %s to %s", engine, short(first.Median), short(last.Median)))
		}
	}
	if len(c.Lines) == 0 {
		return nil
	}
	c.Alt = f.Caption + ": " + strings.Join(said, "; ")
	return []figure{f}
}

// curve returns an engine's line. It returns false if a point is missing.
func (c *curves) curve(g group, engine, metric string, top float64) (curve, bool) {
	var line curve
	var median, upper, lower []string
	for n, cell := range g.cells {
		s, ok := summary(cell, engine, metric)
		if !ok {
			return curve{}, false
		}
		x := c.x(g.x, g.x[n])
		median = append(median, at(x, c.y(s.Median, top)))
		upper = append(upper, at(x, c.y(s.Max, top)))
		lower = append([]string{at(x, c.y(s.Min, top))}, lower...)
		line.Dots = append(line.Dots, [2]float64{x, c.y(s.Median, top)})
	}
	line.Median = strings.Join(median, " ")
	line.Band = strings.Join(append(upper, lower...), " ")
	return line, true
}

// x returns the position of a value on the logarithmic axis.
func (c *curves) x(all []float64, v float64) float64 {
	return tenth(c.Left + (c.Right-c.Left)*math.Log(v/all[0])/math.Log(all[len(all)-1]/all[0]))
}

// y returns the position of a value on the axis from 0 to top.
func (c *curves) y(v, top float64) float64 {
	return tenth(c.Bottom - (c.Bottom-topRoom)*v/top)
}

// xTicks returns the measured values except those whose labels would overlap.
func (c *curves) xTicks(values []float64) (out []tick) {
	last := math.Inf(-1)
	for _, v := range values {
		if at := c.x(values, v); at-last > 34 {
			out, last = append(out, tick{at, short(v)}), at
		}
	}
	return out
}

func at(x, y float64) string { return fmt.Sprintf("%g,%g", x, y) }

func tenth(v float64) float64 { return math.Round(10*v) / 10 }

// niceStep returns the smallest number of the form 1, 2 or 5 times a power of ten that is at least
// v.
func niceStep(v float64) float64 {
	p := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*p >= v {
			return m * p
		}
	}
	return 10 * p
}
