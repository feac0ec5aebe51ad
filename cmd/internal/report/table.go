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

// These are metrics of single suites.
const (
	// DeviceShare is the number of bytes read from the device per byte of a cold read.
	DeviceShare = "device_share"
	// EntersPerOp is the number of io_uring_enter(2) calls per operation. SyscallsPerOp is the
	// number of all system calls per operation.
	EntersPerOp   = "enters_per_op"
	SyscallsPerOp = "syscalls_per_op"
	// IdleCPU is the CPU time, in microseconds per second, of a server without load. WakesPerS is
	// the rate at which its threads were woken.
	IdleCPU   = "idle_cpu_us_per_s"
	WakesPerS = "wakes_per_s"
	// HeapPerConn is the size of heap and stacks per idle connection, and RSSPerConn the resident
	// memory, in bytes.
	HeapPerConn = "heap_bytes_per_conn"
	RSSPerConn  = "rss_bytes_per_conn"
	// SyncsShared is the share of SQLite's syncs that were combined with syncs of other databases.
	SyncsShared = "syncs_shared"
)

// use is the set of places in which a metric appears besides its column.
type use int

const (
	inFiles      use = 1 << iota // result files have its ratios
	beside                       // the table has a column with its ratio
	moreIsBetter                 // comparisons judge it
	lessIsBetter
)

// column is one metric. title is its heading in tables; it is empty for a metric without a column.
// unit is its unit in benchmark lines; it is empty for a metric that is not there.
type column struct {
	title, unit string
	metric      string
	format      func(float64) string
	use         use
}

// columns are all metrics of tables, files and comparisons. They begin with the units of package
// testing, as benchmark tables of Go do.
var columns = []column{
	{"ns/op", "ns/op", measure.NsPerOp, formatNumber, inFiles},
	{"ms/op", "", measure.NsPerOp, func(ns float64) string { return formatNumber(ns / 1e6) }, 0},
	{"MB/s", "MB/s", measure.MBPerS, formatNumber, 0},
	{"B/op", "B/op", measure.BytesPerOp, formatCount, 0},
	{"allocs/op", "allocs/op", measure.AllocsPerOp, formatCount, lessIsBetter},
	{"ops/s", "op/s", measure.OpsPerS, formatNumber, inFiles | beside | moreIsBetter},
	{"CPU µs/op", "cpu-us/op", measure.CPUUsPerOp, formatNumber, inFiles | beside | lessIsBetter},
	{"p50 µs", "p50-us", measure.P50Us, formatNumber, inFiles},
	{"", "p90-us", "p90_us", nil, inFiles}, // of files that older versions wrote
	{"p99 µs", "p99-us", measure.P99Us, formatNumber, inFiles | beside | lessIsBetter},
	{"max µs", "max-us", measure.MaxUs, formatNumber, inFiles},
	{"threads", "threads", measure.Threads, formatWhole, inFiles | lessIsBetter},
	{"computed/s", "units/s", measure.UnitsPerS, formatNumber, inFiles},
	{"device", "device-B/B", DeviceShare, formatPercent, 0},
	{"enters/op", "enters/op", EntersPerOp, formatCount, 0},
	{"floor ns/op", "floor-ns/op", measure.FloorNsPerOp, formatNumber, 0},
	{"syscalls/op", "syscalls/op", SyscallsPerOp, formatCount, 0},
	{"CPU µs/s", "cpu-us/s", IdleCPU, formatNumber, lessIsBetter},
	{"wakes/s", "wakes/s", WakesPerS, formatNumber, 0},
	{"heap B/conn", "heap-B/conn", HeapPerConn, formatWhole, beside | lessIsBetter},
	{"RSS B/conn", "rss-B/conn", RSSPerConn, formatWhole, beside},
	{"", "mean-us", "mean_us", nil, inFiles}, // of files that older versions wrote
	{"syncs shared", "syncs-shared", SyncsShared, formatPercent, 0},
}

// without are the columns that a suite's tables leave out because other columns have the same
// information.
var without = map[string][]string{
	"file": {"ns/op", "ms/op", "B/op"}, "net": {"ns/op", "ms/op", "B/op"}, "ring": {"ms/op"},
	"sqlite": {"ns/op", "B/op", "allocs/op"}, "watch": {"ms/op", "threads"}, Try: {"ns/op"},
}

// Style is how a report is printed.
type Style struct {
	// Color allows ANSI escape sequences.
	Color bool
	// Width is that of the terminal; 0 means no limit. Tables that are wider are written in parts.
	Width int
}

// These are the colours of [Style.Paint].
const (
	Bold   = "1"
	Red    = "31"
	Green  = "32"
	Yellow = "33"
)

// Paint returns the text in a colour, if the style has any.
func (s Style) Paint(color, text string) string {
	if !s.Color || text == "" || color == "" {
		return text
	}
	return "\x1b[" + color + "m" + text + "\x1b[0m"
}

// table is text in columns. The first column is left-aligned, the others are right-aligned.
type table struct {
	rows [][]string
	// colors holds the colours of each row by column.
	colors []map[int]string
}

func (t *table) add(colors map[int]string, cells ...string) {
	t.rows = append(t.rows, cells)
	t.colors = append(t.colors, colors)
}

// write writes the table: if it is wider than the terminal, several columns at a time, each time with the
// first.
func (t *table) write(w *strings.Builder, style Style) {
	widths := make([]int, len(t.rows[0]))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for from := 1; from < len(widths); {
		to, used := from, widths[0]
		for to < len(widths) && (to == from || style.Width == 0 || used+2+widths[to] <= style.Width) {
			used += 2 + widths[to]
			to++
		}
		if from > 1 {
			w.WriteString("\n")
		}
		t.part(w, style, widths, from, to)
		from = to
	}
}

// part writes the first column and the columns in [from, to).
func (t *table) part(w *strings.Builder, style Style, widths []int, from, to int) {
	for n, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			switch {
			case i == 0:
				line.WriteString(cell + pad)
			case i >= from && i < to:
				line.WriteString("  " + pad + style.Paint(t.colors[n][i], cell))
			}
		}
		w.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
}

// Section is a part of a suite's results: neighbouring cells whose rows form one table.
type Section struct {
	Title string
	Cells []Cell
	table table
}

// Rows returns the rows of the table. The first one is the heading. A row without cells is a
// separator.
func (s Section) Rows() [][]string { return s.table.rows }

// Sections returns the results of the run, one table per section.
func (r *Run) Sections() []Section {
	r.assess()
	var out []Section
	for _, c := range r.Cells {
		title := c.section()
		if n := len(out); n == 0 || out[n-1].Title != title || out[n-1].Cells[0].Suite != c.Suite {
			out = append(out, Section{Title: title})
		}
		last := &out[len(out)-1]
		last.Cells = append(last.Cells, c)
	}
	for i := range out {
		out[i].fill()
	}
	return out
}

// WriteTable writes the medians of all rounds in columns.
func (r *Run) WriteTable(w io.Writer, style Style) error {
	var b strings.Builder
	for _, section := range r.Sections() {
		fmt.Fprintf(&b, "%s\n", style.Paint(Bold, section.Title))
		section.table.write(&b, style)
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// fill makes the table. It has the columns for which at least one series has values.
func (s *Section) fill() {
	first, against := s.Cells[0], ""
	for _, c := range s.Cells {
		if len(c.Series) > 1 && against == "" {
			against = c.base(c.Series[1].Engine).Engine
			for _, journal := range journals {
				against = strings.TrimSuffix(against, journal)
			}
		}
	}
	head := []string{strings.Join(append([]string{"engine"}, first.rowParams()...), "_")}
	var shown []column
	for _, col := range columns {
		if col.title == "" || !anyHas(s.Cells, col.metric) || slices.Contains(without[first.Suite], col.title) {
			continue
		}
		if against == "" {
			col.use &^= beside
		}
		shown, head = append(shown, col), append(head, col.title)
		if col.use&beside != 0 {
			head = append(head, "vs "+against)
		}
	}
	s.table.add(nil, head...)
	for i, c := range s.Cells {
		if i > 0 && len(c.Series) > 2 {
			s.table.add(nil)
		}
		for _, series := range c.Series {
			s.addSeries(c, series, shown)
		}
	}
}

// addSeries adds the row of one engine in a cell.
func (s *Section) addSeries(c Cell, series Series, shown []column) {
	row := []string{c.row(series.Engine)}
	colors := map[int]string{}
	for _, col := range shown {
		text := "-"
		if sum, ok := series.Summary(col.metric); ok {
			text = col.format(sum.Median)
		}
		row = append(row, text)
		if col.use&beside != 0 {
			text, color := c.ratioColumn(series, col.metric)
			colors[len(row)] = color
			row = append(row, text)
		}
	}
	s.table.add(colors, row...)
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

// journals are the suffixes of engine names in the speed tests of SQLite.
var journals = []string{"-rollback", "-delete-extra", "-persist", "-wal"}

// base returns the baseline of an engine: the cell's first series. In the speed tests of SQLite it
// is the default VFS with the same journal.
func (c Cell) base(engine string) Series {
	for _, journal := range journals {
		if s, ok := c.Find("default" + journal); ok && strings.HasSuffix(engine, journal) {
			return s
		}
	}
	return c.Series[0]
}

// ratioColumn formats the ratio of a metric to that of the baseline. The ratio of the rate has its
// interval, and a colour if it excludes 1.
func (c Cell) ratioColumn(s Series, metric string) (text, color string) {
	base := c.base(s.Engine)
	if s.Engine == base.Engine {
		return "", ""
	}
	i, ok := c.interval(s, base, metric)
	switch {
	case !ok:
		return "-", ""
	case metric != measure.OpsPerS:
		return fmt.Sprintf("%.2fx", i.Ratio), ""
	case i.Low > 1:
		color = Green
	case i.High < 1:
		color = Red
	}
	return i.String(), color
}

// formatNumber formats about four significant digits, as usual in benchmark tables.
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

// formatCount formats a number that is usually whole or nearly zero.
func formatCount(v float64) string {
	switch {
	case v < 0.005:
		return "0"
	case v < 9.995 && v != float64(int(v)):
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 0, 64)
}

// formatWhole formats a count. A median between two counts is rounded.
func formatWhole(v float64) string { return strconv.FormatFloat(v, 'f', 0, 64) }

// formatPercent formats a share.
func formatPercent(v float64) string { return strconv.FormatFloat(100*v, 'f', 0, 64) + " %" }

// FormatBytes formats a size in the largest binary unit that divides it, such as "64 KiB".
func FormatBytes(n int64) string {
	for i, name := range []string{"TiB", "GiB", "MiB", "KiB"} {
		if size := int64(1) << (40 - 10*i); n >= size && n%size == 0 {
			return fmt.Sprintf("%d %s", n/size, name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
