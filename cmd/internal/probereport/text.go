// SPDX-License-Identifier: MIT

package probereport

import (
	"cmp"
	"fmt"
	"io"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/probe"
)

// WriteText writes the report for people.
func WriteText(w io.Writer, r probe.Report, style report.Style) error {
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
	report.Style
	text strings.Builder
}

func (p *printer) printf(format string, args ...any) { fmt.Fprintf(&p.text, format, args...) }

func (p *printer) verdict(r probe.Report) {
	words, color := map[probe.Answer]string{
		probe.Yes:          "usable",
		probe.Unsupported:  "not supported",
		probe.Forbidden:    "forbidden",
		probe.Inconclusive: "not usable now",
	}[r.Answer], report.Red
	if r.Usable {
		color = report.Green
	}
	p.printf("io_uring is %s\n", p.Paint(color, words))
	if r.Reason != "" {
		p.printf("  why        %s\n", r.Reason)
	}
	if r.Remedy != "" {
		p.printf("  to change  %s\n", p.Paint(report.Bold, r.Remedy))
	}
}

// environment prints the settings and limits of the process.
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
			[2]string{"container (a guess)", cmp.Or(r.Container, "none")},
		)
	}
	rows = append(rows, [2]string{features.EnvBackend, cmp.Or(r.Override, "not set")})
	p.title("environment", "")
	p.pairs(rows)
}

func (p *printer) packages(r probe.Report) {
	if len(r.Packages) == 0 {
		return
	}
	p.title("backends", "")
	for _, pkg := range r.Packages {
		color := report.Green
		if pkg.Backend != "io_uring" {
			color = report.Yellow
		}
		p.printf("  %-10s  %s: %s\n", pkg.Name, p.Paint(color, pkg.Backend), pkg.Reason)
		if pkg.Remedy != "" && pkg.Remedy != r.Remedy {
			p.printf("              to change: %s\n", p.Paint(report.Bold, pkg.Remedy))
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
			p.printf("    to change: %s\n", p.Paint(report.Bold, n.Remedy))
		}
	}
}

func (p *printer) title(name, count string) {
	p.printf("\n%s\n", strings.TrimRight(p.Paint(report.Bold, name)+"  "+count, " "))
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
	s := cmp.Or(strings.Join(names, ", "), "none seen")
	if context != "" {
		s += " (this process: " + context + ")"
	}
	return s
}
