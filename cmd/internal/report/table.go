// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
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

// Title dresses a heading.
func (s Style) Title(text string) string { return s.paint(bold, text) }

// table is text in columns; the first is aligned to the left, others to the right.
type table struct {
	rows [][]string
	// colors holds those of the columns of each row; what is missing has none.
	colors []map[int]string
}

func (t *table) add(colors map[int]string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.colors = append(t.colors, colors)
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
			if i == 0 {
				line.WriteString(cell + pad)
				continue
			}
			line.WriteString("  " + pad + style.paint(t.colors[n][i], cell))
		}
		w.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// WriteTable writes the results of a suite in columns, medians of all rounds, tables for each
// section of the layout.
func (r *Run) WriteTable(w io.Writer, layout Layout, style Style) error {
	r.assessed()
	var b strings.Builder
	for _, section := range r.sections(layout) {
		fmt.Fprintf(&b, "%s\n", style.Title(section.title))
		for _, t := range section.tables(layout) {
			t.write(&b, style)
			b.WriteString("\n")
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// tables are those of a section.
func (sec section) tables(layout Layout) []*table {
	if draw := layout.draw(sec.cells[0]); draw != nil {
		return draw(sec.cells)
	}
	t := newTable(sec.cells, layout)
	for i, c := range sec.cells {
		if len(layout.Ratios) > 0 && i > 0 && len(c.Series) > 2 {
			t.add(nil)
		}
		for _, s := range c.Series {
			t.addSeries(layout.Row(c, s.Engine), c, s)
		}
	}
	return []*table{&t.table}
}

// Section is a part of a suite's results.
type Section struct {
	Title string
	Cells []Cell
	// Tables are the rows of its tables; the first row of each is the head. A row without cells
	// separates.
	Tables [][][]string
}

// Sections returns the parts in which the layout arranges the results.
func (r *Run) Sections(layout Layout) []Section {
	var out []Section
	for _, sec := range r.sections(layout) {
		s := Section{Title: sec.title, Cells: sec.cells}
		for _, t := range sec.tables(layout) {
			s.Tables = append(s.Tables, t.rows)
		}
		out = append(out, s)
	}
	return out
}

// draw returns what writes the cell's section in its own way, or nil.
func (l Layout) draw(c Cell) DrawFunc {
	if l.Draw == nil {
		return nil
	}
	return l.Draw(c)
}

// resultTable is a table with the columns that at least one of its series can fill.
type resultTable struct {
	table
	columns []column
	// beside are the metrics that a column with their ratio follows.
	beside []string
	// against are the engines that others are compared to, a column each.
	against []string
}

func newTable(cells []Cell, layout Layout) *resultTable {
	t := &resultTable{against: comparedTo(cells), beside: layout.Ratios}
	titles := []string{""}
	for _, col := range columns {
		if col.title == "" || !anyHas(cells, col.metric) || slices.Contains(layout.Without, col.metric) {
			continue
		}
		t.columns = append(t.columns, col)
		titles = append(titles, col.title)
		if slices.Contains(t.beside, col.metric) && len(t.against) > 0 {
			titles = append(titles, "vs "+t.against[0])
		}
	}
	if len(t.beside) > 0 {
		t.add(nil, titles...)
		return t
	}
	for i, engine := range t.against {
		title := "vs " + engine
		if i == 0 {
			title = "ops/s " + title
		}
		titles = append(titles, title)
	}
	t.add(nil, titles...)
	return t
}

// comparedTo names the first engine of the cells, and the yardsticks that ringside is compared to
// besides.
func comparedTo(cells []Cell) []string {
	var out []string
	for _, c := range cells {
		if len(c.Series) < 2 {
			continue
		}
		if len(out) == 0 {
			out = append(out, c.Series[0].Engine)
		}
		for _, s := range c.Series[1:] {
			if isYardstick(s.Engine) && !slices.Contains(out, s.Engine) {
				out = append(out, s.Engine)
			}
		}
	}
	return out
}

// isYardstick reports whether the engine is a program that shows what the device can do.
func isYardstick(engine string) bool { return engine == "fio" || strings.HasPrefix(engine, "fio-") }

// addSeries adds the row of one engine in a cell.
func (t *resultTable) addSeries(name string, c Cell, s Series) {
	row := []string{name}
	colors := map[int]string{}
	for _, col := range t.columns {
		text := "-"
		if sum, ok := s.Summary(col.metric); ok {
			text = col.format(sum.Median)
		}
		row = append(row, text)
		if slices.Contains(t.beside, col.metric) && len(t.against) > 0 {
			text, color := c.besideColumn(s, t.against[0], col.metric)
			colors[len(row)] = color
			row = append(row, text)
		}
	}
	if len(t.beside) > 0 {
		t.add(colors, row...)
		return
	}
	for i, engine := range t.against {
		if i > 0 && isYardstick(s.Engine) {
			row = append(row, "") // Yardsticks are not compared to each other.
			continue
		}
		text, color := c.ratioColumn(s, engine)
		if i > 0 && s.Engine == t.against[0] {
			text, color = "", ""
		}
		colors[len(row)] = color
		row = append(row, text)
	}
	t.add(colors, row...)
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

// ratioColumn prints how the rate compares to that of another engine in the cell, with the spread.
func (c Cell) ratioColumn(s Series, against string) (text, color string) {
	other, ok := c.find(against)
	if !ok || s.Engine == against {
		return "", ""
	}
	sum, ok := s.Ratio(other, measure.OpsPerS)
	if !ok {
		return "-", ""
	}
	switch c.judge(s, other, measure.OpsPerS) {
	case faster:
		color = green
	case slower:
		color = red
	}
	return formatRatio(sum), color
}

// besideColumn prints the ratio of a metric to that of another engine: of the rate with its spread, of
// others the median.
func (c Cell) besideColumn(s Series, against, metric string) (text, color string) {
	if metric == measure.OpsPerS {
		return c.ratioColumn(s, against)
	}
	other, ok := c.find(against)
	if !ok || s.Engine == against {
		return "", ""
	}
	sum, ok := s.Ratio(other, metric)
	if !ok {
		return "-", ""
	}
	return fmt.Sprintf("%.2fx", sum.Median), ""
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

// formatNumber prints about four significant digits, as readers of benchmark tables expect.
func formatNumber(v float64) string {
	decimals := 0
	switch {
	case v < 9.9995:
		decimals = 3
	case v < 99.995:
		decimals = 2
	case v < 999.95:
		decimals = 1
	}
	return strconv.FormatFloat(v, 'f', decimals, 64)
}

// formatCount prints what is usually a whole number or nearly zero.
func formatCount(v float64) string {
	switch {
	case v < 0.005:
		return "0"
	case v < 9.995 && v != float64(int(v)):
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// formatWhole prints a count that is whole except for a median between two.
func formatWhole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// formatPercent prints a share.
func formatPercent(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + " %" }

// FormatBytes prints a size in the largest binary unit that divides it, such as "64 KiB".
func FormatBytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 40, "TiB"}, {1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
