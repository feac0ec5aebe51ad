// SPDX-License-Identifier: MIT

// Package htmlreport writes a benchmark run as one HTML page that needs nothing else: no network, no
// scripts, no fonts. It has what the run says in words, a picture of each comparison and of each axis
// that was measured, and the tables behind them.
package htmlreport

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageText))

// suiteTitles are headings in a reader's words.
var suiteTitles = map[string]string{
	"file": "Files", "net": "Sockets", "ring": "The ring", "sqlite": "SQLite", "watch": "Watching",
}

// Write writes the run as a page.
func Write(w io.Writer, run *report.Run) error {
	return page.Execute(w, content(run))
}

// pageData is what the template is filled with.
type pageData struct {
	Style   template.CSS
	Title   string
	Facts   []report.Fact
	Notes   []string
	Advice  []advice
	Suites  []suite
	Skipped []string
}

// advice is what to use for what.
type advice struct {
	Head  string
	Lines []adviceLine
}

type adviceLine struct{ Kind, Mark, Text string }

// suite is one part of the page.
type suite struct {
	Name, Title string
	Words       []string
	Figures     []figure
	Sections    []section
}

// figure is a picture: ranges, or curves.
type figure struct {
	Caption string
	Legend  []legend
	Ranges  *ranges
	Curves  *curves
}

// legend names the engine of a colour.
type legend struct {
	Color int
	Name  string
}

// section holds tables, of which the first row is the head.
type section struct {
	Title  string
	Tables []table
}

type table struct {
	Head []string
	Rows [][]string
}

func content(run *report.Run) pageData {
	data := pageData{
		Style: template.CSS(pageStyle), //nolint:gosec // our own file
		Title: "ringside bench", Facts: append(run.Host.Facts(), report.Fact{Name: "measured", Value: run.Host.Time}), Notes: run.Notes,
	}
	for _, a := range run.Advise() {
		data.Advice = append(data.Advice, adviceOf(a))
	}
	for _, s := range run.Skipped {
		data.Skipped = append(data.Skipped, s.String())
	}
	for _, name := range run.Suites() {
		data.Suites = append(data.Suites, suiteOf(name, run.Suite(name)))
	}
	return data
}

func adviceOf(a report.Advice) advice {
	out := advice{Head: a.Head()}
	for _, v := range a.Verdicts() {
		l := adviceLine{"same", "–", v.Text}
		switch v.Kind {
		case report.Better:
			l.Kind, l.Mark = "yes", "✓"
		case report.Worse:
			l.Kind, l.Mark = "no", "✗"
		}
		out.Lines = append(out.Lines, l)
	}
	return out
}

func suiteOf(name string, run *report.Run) suite {
	layout := report.LayoutOf(name)
	s := suite{Name: name, Title: suiteTitles[name], Words: run.Words(layout)}
	if s.Title == "" {
		s.Title = name
	}
	s.Figures = figuresOf(run)
	for _, sec := range run.Sections(layout) {
		out := section{Title: sec.Title}
		for _, rows := range sec.Tables {
			if len(rows) > 0 {
				out.Tables = append(out.Tables, table{Head: rows[0], Rows: rows[1:]})
			}
		}
		s.Sections = append(s.Sections, out)
	}
	return s
}

// without names a cell by all of its parameters but one.
func without(c report.Cell, param string) string {
	words := []string{c.Workload}
	for _, key := range slices.Sorted(maps.Keys(c.Params)) {
		switch key {
		case param, "device":
		case "block", "size", "record":
			if n, ok := number(c.Params[key]); ok {
				words = append(words, report.FormatBytes(int64(n)))
				continue
			}
			words = append(words, fmt.Sprint(c.Params[key]))
		case "cache":
			words = append(words, map[any]string{"hot": "page cache hot", "direct": "O_DIRECT", "cold": "page cache cold"}[c.Params[key]])
		case "mode", "journal", "source", "client", "storage", "what":
			words = append(words, fmt.Sprint(c.Params[key]))
		default:
			words = append(words, fmt.Sprintf("%s %v", key, c.Params[key]))
		}
	}
	return strings.Join(words, ", ")
}

// short writes a number as an axis does: 1.5k, 20k, 3M.
func short(v float64) string {
	for _, u := range []struct {
		size float64
		name string
	}{{1e9, "G"}, {1e6, "M"}, {1e3, "k"}} {
		if v >= u.size {
			return trim(v/u.size) + u.name
		}
	}
	return trim(v)
}

// trim writes up to three significant digits.
func trim(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
