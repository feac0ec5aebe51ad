// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// isHTTP reports whether a cell of the suite "watch" is of the web server.
func isHTTP(c Cell) bool { return c.Workload == "http" }

// httpTitle is the title of a cell of the web server.
func httpTitle(c Cell) string {
	kept := "a connection for each"
	if c.Params["keepalive"] == true {
		kept = "connections kept"
	}
	return fmt.Sprintf("%s, %v requests, %v at a time, %s", c.Workload, c.Params["requests"], c.Params["connections"], kept)
}

// drawHTTP makes the tables that ab prints, engines side by side.
func drawHTTP(cells []Cell) (out []*table) {
	for _, c := range cells {
		out = append(out, c.phases(), c.percentiles())
	}
	return out
}

// phases are the connection times.
func (c Cell) phases() *table {
	columns := []struct{ title, what string }{{"min", "min"}, {"mean", "mean"}, {"[+/-sd]", "sd"}, {"median", "median"}, {"max", "max"}}
	t := &table{}
	title := []string{"Connection Times (ms)"}
	for _, s := range c.Series {
		for i, col := range columns {
			if col.title == "min" {
				title = append(title, s.Engine+": min")
			} else {
				title = append(title, columns[i].title)
			}
		}
	}
	t.add(nil, title...)
	for _, phase := range ab.Phases {
		row := []string{strings.ToUpper(phase[:1]) + phase[1:] + ":"}
		for _, s := range c.Series {
			for _, col := range columns {
				row = append(row, s.median(ab.MetricPhase(phase, col.what), 1))
			}
		}
		t.add(nil, row...)
	}
	return t
}

// percentiles tell within which time what share of the requests was served, and the ratio of
// each engine's to the first one's.
func (c Cell) percentiles() *table {
	t := &table{}
	title := []string{"Requests served within (ms)"}
	for i, s := range c.Series {
		title = append(title, s.Engine)
		if i > 0 {
			title = append(title, "vs "+c.Series[0].Engine)
		}
	}
	t.add(nil, title...)
	row := func(name, metric string, divisor float64) {
		cells := []string{name}
		for i, s := range c.Series {
			cells = append(cells, s.median(metric, divisor))
			if i == 0 {
				continue
			}
			text := "-"
			if sum, ok := s.Ratio(c.Series[0], metric); ok {
				text = formatRatio(sum)
			}
			cells = append(cells, text)
		}
		t.add(nil, cells...)
	}
	for _, p := range ab.Percents {
		row(fmt.Sprintf("%d%%", p), ab.MetricPercentile(p), 1e3)
	}
	row("mean", ab.MetricMean, 1e3)
	row("requests/s", measure.OpsPerS, 1)
	row("server's CPU, µs/request", measure.CPUUsPerOp, 1)
	return t
}

// median prints the median of a metric.
func (s Series) median(metric string, divisor float64) string {
	sum, ok := s.Summary(metric)
	switch v := sum.Median / divisor; {
	case !ok:
		return "-"
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	default:
		return strings.TrimSuffix(fmt.Sprintf("%.3f", v), ".000")
	}
}
