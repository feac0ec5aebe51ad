// SPDX-License-Identifier: MIT

// Package htmlreport writes a benchmark run as a self-contained HTML page, without network access,
// scripts or fonts. The page has the summary in words, a figure for each comparison and for each
// measured axis, and the tables with the values.
package htmlreport

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"regexp"
	"slices"
	"strconv"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

//go:embed page.html
var pageText string

//go:embed page.css
var pageStyle string

var page = template.Must(template.New("page").Parse(pageText))

// suiteTitles are the headings of suites.
var suiteTitles = map[string]string{
	"file": "Files", "net": "Sockets", "ring": "The ring", "sqlite": "SQLite", "watch": "Watching",
	report.Try: "An unchanged program",
}

// Write writes the run as a page.
func Write(w io.Writer, run *report.Run) error {
	return page.Execute(w, content(run))
}

// pageData is the data of the template.
type pageData struct {
	Style   template.CSS
	Title   string
	Facts   []report.Fact
	Notes   []string
	Summary string
	Answers []answer
	Suites  []suite
	Skipped []string
}

// answer is a row of the first table: a work, a choice, and the finding. Anchor is that of its row in
// the plot of intervals.
type answer struct{ Kind, Mark, Work, Choice, Rate, CPU, P99, Anchor string }

// suite is one part of the page.
type suite struct {
	Name, Title string
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

// legend is the colour of an engine.
type legend struct {
	Color int
	Name  string
}

// section is a table.
type section struct {
	Title string
	Head  []string
	Rows  [][]string
}

func content(run *report.Run) pageData {
	command := "bench"
	if slices.Contains(run.Suites(), report.Try) {
		command = "try"
	}
	data := pageData{
		Style: template.CSS(pageStyle), //nolint:gosec // our own file
		Title: "ringside " + command, Facts: append(run.Host.Facts(), report.Fact{Name: "measured", Value: run.Host.Time}), Notes: run.Notes,
	}
	claims := run.Claims()
	if len(claims) > 0 {
		data.Summary = report.Summary(claims)
	}
	for i, c := range claims {
		data.Answers = append(data.Answers, answerOf(i, c))
	}
	kinds := []string{report.Gain, report.Loss, report.None, report.Open}
	slices.SortStableFunc(data.Answers, func(a, b answer) int {
		return cmp.Compare(slices.Index(kinds, a.Kind), slices.Index(kinds, b.Kind))
	})
	for _, s := range run.Skipped {
		data.Skipped = append(data.Skipped, s.String())
	}
	for _, name := range run.Suites() {
		data.Suites = append(data.Suites, suiteOf(name, run.Suite(name), claims))
	}
	return data
}

// beforeUnit matches the space between a number and its unit, at which no line may break.
var beforeUnit = regexp.MustCompile(`(\d) (B|KiB|MiB|%)`)

// answerOf returns a row of the first table.
func answerOf(i int, c report.Claim) answer {
	mark := map[string]string{report.Gain: "✓", report.Loss: "✗", report.None: "=", report.Open: "?"}[c.Kind]
	a := answer{
		Kind: c.Kind, Mark: mark, Work: beforeUnit.ReplaceAllString(c.Point, "$1\u00a0$2"), Choice: c.Use + " instead of " + c.Instead,
		Rate: c.Rate.String(), CPU: "–", P99: "–", Anchor: fmt.Sprintf("%s-%d", c.Suite, i),
	}
	if c.CPU.Ratio > 0 {
		a.CPU = fmt.Sprintf("%.2f", c.CPU.Ratio)
	}
	if c.P99.Ratio > 0 {
		a.P99 = fmt.Sprintf("%.2f", c.P99.Ratio)
	}
	return a
}

func suiteOf(name string, run *report.Run, claims []report.Claim) suite {
	s := suite{Name: name, Title: cmp.Or(suiteTitles[name], name), Figures: figuresOf(run, claims)}
	for _, sec := range run.Sections() {
		rows := sec.Rows()
		s.Sections = append(s.Sections, section{Title: sec.Title, Head: rows[0], Rows: rows[1:]})
	}
	return s
}

// short formats a number as on an axis: 1.5k, 20k, 3M.
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

// trim formats up to three significant digits.
func trim(v float64) string { return strconv.FormatFloat(v, 'g', 3, 64) }
