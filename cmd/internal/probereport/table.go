// SPDX-License-Identifier: MIT

package probereport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/internal/probe"
)

// lineWidth is the width of a table.
const lineWidth = 100

// gap is the space between columns.
const gap = "    "

// mark returns the word and the colour for an entry.
func mark(e probe.Entry) (word, color string) {
	switch e.Answer {
	case probe.Yes:
		return "yes", report.Green
	case probe.Unsupported:
		return "no", report.Yellow
	case probe.Forbidden:
		switch {
		case e.Known == nil:
			return "forbidden", report.Red
		case *e.Known:
			return "known", report.Red
		}
		return "no", report.Yellow
	}
	return "unclear", report.Red
}

// table prints entries in columns that are read from top to bottom, or in one line if all entries
// are equal.
func (p *printer) table(title string, entries []probe.Entry) {
	if len(entries) == 0 {
		return
	}
	yes, known, marks := 0, 0, map[string]bool{}
	for _, e := range entries {
		word, _ := mark(e)
		marks[word] = true
		switch word {
		case "yes":
			yes++
		case "known":
			known++
		}
	}
	count := fmt.Sprintf("%d of %d", yes, len(entries))
	switch {
	case len(marks) == 1 && yes+known == 0:
		word, color := mark(entries[0])
		p.title(title, p.Paint(color, map[string]string{"no": "none", "forbidden": "forbidden", "unclear": "unclear"}[word]))
		return
	case known > 0:
		count = fmt.Sprintf("forbidden, though the kernel knows %d of %d", known, len(entries))
	}
	p.title(title, count)
	p.grid(entries)
	for _, e := range entries {
		if e.Reason != "" && e.Answer != probe.Unsupported {
			p.printf("  %s: %s\n", e.Name, e.Reason)
		}
	}
}

func (p *printer) grid(entries []probe.Entry) {
	name, since, word := 0, 0, 0
	for _, e := range entries {
		m, _ := mark(e)
		name, since, word = max(name, len(e.Name)), max(since, len(e.Since)), max(word, len(m))
	}
	cell := len(gap) + name + 2 + since + 2 + word
	columns := max(1, (lineWidth+len(gap))/cell)
	rows := (len(entries) + columns - 1) / columns
	for row := range rows {
		var line strings.Builder
		for i := row; i < len(entries); i += rows {
			e := entries[i]
			m, color := mark(e)
			pad := strings.Repeat(" ", word-len(m))
			fmt.Fprintf(&line, "%s%-*s  %-*s  %s%s", gap, name, e.Name, since, e.Since, p.Paint(color, m), pad)
		}
		p.printf("  %s\n", strings.TrimSpace(line.String()))
	}
}

// change is a setting or a kernel version, with the entries that it would make available.
type change struct {
	remedy string
	major  int // the major version of Linux that it requires
	minor  int
	gains  []string
}

// changes prints, for each possible change, what it would make available. Kernel versions come
// first, in order.
func (p *printer) changes(r probe.Report) {
	var list []*change
	byRemedy := map[string]*change{}
	for _, s := range sections(r) {
		for _, e := range s.entries {
			if e.Remedy == "" {
				continue
			}
			c := byRemedy[e.Remedy]
			if c == nil {
				c = &change{remedy: e.Remedy, major: math.MaxInt}
				if strings.Contains(e.Remedy, e.Since) {
					_, _ = fmt.Sscanf(e.Since, "%d.%d", &c.major, &c.minor)
				}
				byRemedy[e.Remedy], list = c, append(list, c)
			}
			c.gains = append(c.gains, e.Name)
		}
	}
	if len(list) == 0 {
		return
	}
	slices.SortStableFunc(list, func(a, b *change) int {
		return cmp.Or(cmp.Compare(a.major, b.major), cmp.Compare(a.minor, b.minor))
	})
	p.title("to get more", "")
	for _, c := range list {
		p.printf("  %s\n%s", p.Paint(report.Bold, c.remedy), wrap(c.gains, "    ", lineWidth))
	}
}

// wrap joins words with commas and breaks the text into lines.
func wrap(words []string, indent string, width int) string {
	var b strings.Builder
	line := indent
	for i, w := range words {
		if i < len(words)-1 {
			w += ","
		}
		if len(line) > len(indent) && len(line)+1+len(w) > width {
			b.WriteString(line + "\n")
			line = indent
		}
		if len(line) > len(indent) {
			line += " "
		}
		line += w
	}
	return b.String() + line + "\n"
}
