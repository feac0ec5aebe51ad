// SPDX-License-Identifier: MIT

package probereport

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
)

// WriteJSON writes the report as indented JSON; [probe.Report] documents the fields.
func WriteJSON(w io.Writer, r probe.Report) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(r)
}

// WriteText writes the report for people.
func WriteText(w io.Writer, r probe.Report, style Style) error {
	p := &printer{Style: style}
	p.verdict(r)
	p.environment(r)
	p.packages(r)
	p.printf("\nBelow: what there is, the first Linux that has it, whether it works here.\n")
	for _, t := range sections(r) {
		p.table(t.title, t.entries)
	}
	p.changes(r)
	p.notes(r)
	_, err := io.WriteString(w, p.text.String())
	return err
}

// section is one table of the report.
type section struct {
	title   string
	entries []probe.Entry
}

func sections(r probe.Report) []section {
	return []section{
		{"feature bits", r.Features}, {"opcodes", r.Ops}, {"setup flags", r.Setup},
		{"register operations", r.Register}, {"enter flags", r.Enter}, {"behaviour, tried", r.Behaviours},
	}
}

// printer collects the text.
type printer struct {
	Style
	text strings.Builder
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

func (p *printer) verdict(r probe.Report) {
	words, color := map[probe.Answer]string{
		probe.Yes:          "usable",
		probe.Unsupported:  "not supported",
		probe.Forbidden:    "forbidden",
		probe.Inconclusive: "not usable now",
	}[r.Answer], red
	if r.Usable {
		color = green
	}
	p.printf("io_uring is %s\n", p.paint(color, words))
	if r.Reason != "" {
		p.printf("  why        %s\n", r.Reason)
	}
	if r.Remedy != "" {
		p.printf("  to change  %s\n", p.paint(bold, r.Remedy))
	}
}

// environment prints what surrounds the process.
func (p *printer) environment(r probe.Report) {
	kernel := r.OS + "/" + r.Arch
	if r.Kernel != "" {
		kernel = "Linux " + r.Kernel + " (" + kernel + ")"
	}
	rows := [][2]string{{"kernel", kernel}}
	if r.OS == "linux" {
		rows = append(rows,
			[2]string{"kernel.io_uring_disabled", disabled(r.Disabled)},
			[2]string{"kernel.io_uring_group", group(r.Group)},
			[2]string{"seccomp", seccomp(r.Seccomp, r.SeccompFilters)},
			[2]string{"memlock", memlock(r.Memlock)},
			[2]string{"security modules", modules(r.LSMs, r.Context)},
			[2]string{"container (a guess)", orWord(r.Container, "none")},
		)
	}
	rows = append(rows, [2]string{features.EnvBackend, orWord(r.Override, "not set")})
	p.title("environment", "")
	p.pairs(rows)
}

func (p *printer) packages(r probe.Report) {
	if len(r.Packages) == 0 {
		return
	}
	p.title("backends", "")
	for _, pkg := range r.Packages {
		color := green
		if pkg.Backend != "io_uring" {
			color = yellow
		}
		p.printf("  %-10s  %s: %s\n", pkg.Name, p.paint(color, pkg.Backend), pkg.Reason)
		if pkg.Remedy != "" && pkg.Remedy != r.Remedy {
			p.printf("              to change: %s\n", p.paint(bold, pkg.Remedy))
		}
	}
}

func (p *printer) notes(r probe.Report) {
	if len(r.Notes) == 0 {
		return
	}
	p.title("notes", "")
	for _, n := range r.Notes {
		p.printf("  %s: %s\n", n.About, n.Text)
		if n.Remedy != "" {
			p.printf("    to change: %s\n", p.paint(bold, n.Remedy))
		}
	}
}

func (p *printer) title(name, count string) {
	p.printf("\n%s\n", strings.TrimRight(p.paint(bold, name)+"  "+count, " "))
}

// pairs prints names and values in two columns.
func (p *printer) pairs(rows [][2]string) {
	width := 0
	for _, r := range rows {
		width = max(width, len(r[0]))
	}
	for _, r := range rows {
		p.printf("  %-*s  %s\n", width, r[0], r[1])
	}
}

const unknown = "unknown"

func orWord(s, word string) string {
	if s == "" {
		return word
	}
	return s
}

func disabled(v *int) string {
	if v == nil {
		return "not there (it came with Linux 6.6)"
	}
	switch *v {
	case 0:
		return "0: allowed to every process"
	case 1:
		return "1: allowed to CAP_SYS_ADMIN and the group below"
	case 2:
		return "2: forbidden to every process"
	}
	return fmt.Sprint(*v)
}

func group(v *int) string {
	switch {
	case v == nil:
		return "not there"
	case *v < 0:
		return fmt.Sprintf("%d: no group", *v)
	}
	return fmt.Sprint(*v)
}

func seccomp(mode, filters *int) string {
	if mode == nil {
		return unknown
	}
	switch *mode {
	case 0:
		return "off"
	case 1:
		return "strict"
	case 2:
		if filters != nil && *filters > 1 {
			return fmt.Sprintf("%d filters", *filters)
		}
		return "a filter"
	}
	return fmt.Sprint(*mode)
}

func memlock(m probe.Memlock) string {
	s := fmt.Sprintf("%s soft, %s hard", limit(m.Soft), limit(m.Hard))
	if m.Exempt {
		s += ", not binding with CAP_IPC_LOCK"
	}
	return s
}

func limit(n *int64) string {
	switch {
	case n == nil:
		return unknown
	case *n < 0:
		return "unlimited"
	}
	return report.FormatBytes(*n)
}

func modules(names []string, context string) string {
	s := orWord(strings.Join(names, ", "), "none seen")
	if context != "" {
		s += " (this process: " + context + ")"
	}
	return s
}

// Style says how a report is dressed.
type Style struct {
	// Color allows ANSI escape sequences.
	Color bool
}

const (
	bold   = "1"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func (s Style) paint(code, text string) string {
	if !s.Color || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}
