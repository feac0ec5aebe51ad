// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// WatchLayout arranges the suite "watch": a table for each source of events, and those of ab for the
// web server.
var WatchLayout = Layout{
	Without: []string{measure.OpsPerS, measure.Threads}, // Watching is told by its time, and has one thread.
	Section: func(c Cell) string {
		if isHTTP(c) {
			return httpTitle(c)
		}
		return fmt.Sprintf("%s, %s", c.Workload, sourceWords(c.Params["source"]))
	},
	Draw: func(c Cell) DrawFunc {
		if isHTTP(c) {
			return drawHTTP
		}
		return nil
	},
	Row: func(c Cell, engine string) string {
		if mode, ok := c.Params["mode"]; ok {
			engine += fmt.Sprintf("_%v_%v", mode, c.Params["active"])
		}
		if idle, ok := c.Params["idle"]; ok {
			engine += fmt.Sprintf("+%v", idle)
		}
		return engine
	},
	Point: func(c Cell) string {
		var words []string
		if mode, ok := c.Params["mode"]; ok {
			words = append(words, fmt.Sprintf("%v %v", mode, c.Params["active"]))
		}
		if idle, ok := c.Params["idle"]; ok {
			words = append(words, fmt.Sprintf("beside %v idle", idle))
		}
		switch {
		case isHTTP(c):
			return "requests"
		case len(words) == 0:
			return "a wake"
		}
		return strings.Join(words, " ")
	},
	Subject: "io_uring",
}

func sourceWords(source any) string {
	switch source {
	case "eventfd":
		return "eventfds"
	case "socketpair":
		return "pairs of sockets"
	case "wake":
		return "wakes from another goroutine"
	}
	return fmt.Sprint(source)
}

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
