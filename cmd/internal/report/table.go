// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Style says how a report is dressed.
type Style struct {
	// Color allows ANSI escape sequences.
	Color bool
}

const (
	bold  = "1"
	green = "32"
	red   = "31"
)

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

// table is text in columns; the first is aligned to the left, others to the right.
type table struct {
	rows [][]string
	// last holds the colour of the last column of each row.
	last []string
}

func (t *table) add(color string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.last = append(t.last, color)
}

func (t *table) write(w *strings.Builder, style Style) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case i == len(row)-1:
				line.WriteString("  " + pad + style.paint(t.last[n], cell))
			default:
				line.WriteString("  " + pad + cell)
			}
		}
		w.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// WriteTable writes the results of a suite in columns, medians of all rounds, one table for each
// section of the layout.
func (r *Run) WriteTable(w io.Writer, layout Layout, style Style) error {
	var b strings.Builder
	for _, section := range r.sections(layout) {
		fmt.Fprintf(&b, "%s\n", style.paint(bold, section.title))
		t := newTable(section.cells)
		for _, c := range section.cells {
			for _, s := range c.Series {
				ratio, color := c.ratioColumn(s)
				t.add(color, t.row(layout.Row(c, s.Engine), s, ratio)...)
			}
		}
		t.write(&b, style)
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// resultTable is a table with the columns that at least one of its series can fill.
type resultTable struct {
	table
	columns []column
}

func newTable(cells []Cell) *resultTable {
	t := &resultTable{}
	titles := []string{""}
	for _, col := range columns {
		if anyHas(cells, col.metric) {
			t.columns = append(t.columns, col)
			titles = append(titles, col.title)
		}
	}
	t.add("", append(titles, ratioTitle(cells))...)
	return t
}

// ratioTitle names the engine that the others are compared to, if there are others.
func ratioTitle(cells []Cell) string {
	for _, c := range cells {
		if len(c.Series) > 1 {
			return fmt.Sprintf("ops/s vs %s", c.Series[0].Engine)
		}
	}
	return ""
}

func anyHas(cells []Cell, metric string) bool {
	for _, c := range cells {
		for _, s := range c.Series {
			if _, ok := s.values(metric); ok {
				return true
			}
		}
	}
	return false
}

func (t *resultTable) row(name string, s Series, ratio string) []string {
	out := []string{name}
	for _, col := range t.columns {
		text := "-"
		if sum, ok := s.Summary(col.metric); ok {
			text = col.format(sum.Median)
		}
		out = append(out, text)
	}
	return append(out, ratio)
}

// ratioColumn prints how the series compares to the cell's first one, with the spread.
func (c Cell) ratioColumn(s Series) (text, color string) {
	if s.Engine == c.Series[0].Engine {
		return "", ""
	}
	sum, ok := s.Ratio(c.Series[0], measure.OpsPerS)
	if !ok {
		return "-", ""
	}
	switch judge(sum, len(s.Samples)) {
	case faster:
		color = green
	case slower:
		color = red
	}
	return formatRatio(sum), color
}

func formatRatio(s measure.Summary) string {
	return fmt.Sprintf("%.2fx (%.2f–%.2f)", s.Median, s.Min, s.Max)
}

// section is a run of neighbouring cells with one title.
type section struct {
	title string
	cells []Cell
}

func (r *Run) sections(layout Layout) []section {
	var out []section
	for _, c := range r.Cells {
		title := layout.Section(c)
		if n := len(out); n == 0 || out[n-1].title != title {
			out = append(out, section{title: title})
		}
		last := &out[len(out)-1]
		last.cells = append(last.cells, c)
	}
	return out
}
