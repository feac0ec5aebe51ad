// SPDX-License-Identifier: MIT

package main

import (
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

var writeResults = flag.Bool("results", false,
	"write the generated parts of docs/results.md and results/tables.md from results/*.json")

// publishedSuites are the result files of results/tables.md, by the heading of their table.
var publishedSuites = [][2]string{
	{"Files", "file.json"}, {"Sockets", "net.json"}, {"Larger messages", "net-echo-sizes.json"}, {"Other sockets", "net-more.json"},
	{"fasthttp", "net-fasthttp.json"}, {"Handlers", "net-handlers.json"}, {"Watching", "watch.json"},
	{"SQLite", "sqlite.json"}, {"Cold databases", "sqlite-cold.json"}, {"SQLite's speed tests", "sqlite-speed.json"}, {"The ring", "ring.json"},
}

// headlines are the questions with which docs/results.md begins: the file, the choice and the point of a
// claim.
var headlines = [][3]string{
	{"file.json", "ufile instead of os.File", "random reads, O_DIRECT, 128 goroutines, 4 KiB"},
	{"file.json", "appendlog instead of a plain group commit", "durable appends, 64 goroutines, records of 128 B"},
	{"net.json", "unet/event instead of package net", "echoed messages, 100 connections, 128 B"},
	{"net.json", "unet instead of package net", "messages over TLS, 100 connections, 4 KiB"},
	{"net.json", "unet instead of package net", "HTTP requests, 10 connections, 128 B"},
	{"watch.json", "watch on io_uring instead of watch on epoll", "events, eventfds, edge, 100 active"},
	{"sqlite.json", "sqlitevfs with the shared log instead of the default VFS", "commits, wal, 64 databases, 1 connection"},
	{"sqlite-cold.json", "sqlitevfs instead of the default VFS", "not cached, scan of a fragmented table"},
}

// publishedClaims returns the claims of the files in results, by the name of the file.
func publishedClaims(t *testing.T) map[string][]report.Claim {
	t.Helper()
	out := map[string][]report.Claim{}
	for _, s := range publishedSuites {
		d, err := readResults(filepath.Join("..", "..", "results", s[1]))
		if err != nil {
			t.Fatal(err)
		}
		run, err := d.Run()
		if err != nil {
			t.Fatalf("%s: %v", s[1], err)
		}
		out[s[1]] = run.Claims()
	}
	return out
}

// answerRow is the row of a claim: work, answer, rate, CPU, p99.
func answerRow(work string, c report.Claim) string {
	ratio := func(i report.Interval) string {
		if i.Ratio == 0 {
			return "–"
		}
		return i.String()
	}
	answer := c.Kind
	if c.Kind == report.Gain || c.Kind == report.Loss {
		answer = "**" + c.Kind + "**"
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s |", work, answer, c.Rate, ratio(c.CPU), ratio(c.P99))
}

// plot draws an interval of rates on an axis from 1/4 to 4.
func plot(i report.Interval) string {
	const width = 25
	at := func(v float64) int {
		return int(math.Round((math.Log2(min(max(v, 0.25), 4)) + 2) / 4 * (width - 1)))
	}
	line := []rune(strings.Repeat("·", width))
	line[at(1)] = '|'
	if i.High > 0 {
		for n := at(i.Low); n <= at(i.High); n++ {
			line[n] = '━'
		}
	}
	line[at(i.Ratio)] = '●'
	return "`" + string(line) + "`"
}

// answerHead begins a table of rows of answerRow.
func answerHead(last string) string {
	columns := "| work | answer | rate | CPU | p99 |" + last
	return columns + "\n" + strings.Repeat("|---", strings.Count(columns, "|")-1) + "|\n"
}

// generatedParts returns what is generated in docs/results.md and results/tables.md, by its names.
func generatedParts(t *testing.T, claims map[string][]report.Claim) map[string]string {
	t.Helper()
	var head, losses, tables strings.Builder
	head.WriteString(answerHead(" command |"))
	losses.WriteString(answerHead(""))
	for _, h := range headlines {
		i := slices.IndexFunc(claims[h[0]], func(c report.Claim) bool {
			return c.Use+" instead of "+c.Instead == h[1] && c.Point == h[2]
		})
		if i < 0 {
			t.Errorf("no claim %q in results/%s", h[1:], h[0])
			continue
		}
		c := claims[h[0]][i]
		fmt.Fprintf(&head, "%s `go run ./cmd/%s` |\n", answerRow(h[1]+": "+h[2], c), c.Command())
	}
	for _, s := range publishedSuites {
		all := claims[s[1]]
		fmt.Fprintf(&tables, "## %s\n\n%s [The file](%s).\n\n", s[0], report.Summary(all), s[1])
		tables.WriteString(answerHead(" ¼ … 1 … 4 |"))
		for _, c := range all {
			row := answerRow(c.Use+" ÷ "+c.Instead+": "+c.Point, c)
			fmt.Fprintf(&tables, "%s %s |\n", row, plot(c.Rate))
			if c.Kind == report.Loss {
				losses.WriteString(row + "\n")
			}
		}
		tables.WriteString("\n")
	}
	return map[string]string{
		"answers": head.String(), "losses": losses.String(),
		"tables": strings.TrimSuffix(tables.String(), "\n"),
	}
}

// TestPublishedResults checks that docs/results.md and results/tables.md have the claims of the files in
// results. With -results it writes them.
func TestPublishedResults(t *testing.T) {
	parts := generatedParts(t, publishedClaims(t))
	for page, names := range map[string][]string{"docs/results.md": {"answers", "losses"}, "results/tables.md": {"tables"}} {
		path := filepath.Join("..", "..", filepath.FromSlash(page))
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		text := string(b)
		for _, name := range names {
			part := regexp.MustCompile(`(?s)(<!-- ` + name + ` -->\n).*?(<!-- end -->)`)
			m := part.FindStringSubmatch(text)
			if m == nil {
				t.Fatalf("no part %q in %s", name, page)
			}
			now := m[1] + parts[name] + m[2]
			if now != m[0] && !*writeResults {
				t.Errorf("the part %q of %s is not that of results/*.json: %s", name, page,
					"go test ./cmd/ringside -run TestPublishedResults -results")
			}
			text = strings.Replace(text, m[0], now, 1)
		}
		if *writeResults {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// citedInterval matches a ratio with its interval, and citedRatio one without.
var (
	citedInterval = regexp.MustCompile(`[0-9]+\.[0-9]+x \([0-9.]+–[0-9.]+\)`)
	citedRatio    = regexp.MustCompile(`[0-9]+\.[0-9]{2}x|[0-9]+\.[0-9]+ times`)
)

// TestCitedFigures checks that each ratio in README and in the guides is that of a claim, gain, loss or no
// difference, of a file in results.
func TestCitedFigures(t *testing.T) {
	known := map[string]bool{}
	for _, claims := range publishedClaims(t) {
		for _, c := range claims {
			if c.Kind == report.Open {
				continue
			}
			for _, i := range []report.Interval{c.Rate, c.CPU, c.P99} {
				known[i.String()], known[fmt.Sprintf("%.2fx", i.Ratio)] = true, true
			}
		}
	}
	pages, err := filepath.Glob(filepath.Join("..", "..", "docs", "guide*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("%d guides, %v", len(pages), err)
	}
	cited := 0
	for _, path := range append(pages, filepath.Join("..", "..", "README.md")) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, figure := range append(citedInterval.FindAllString(string(b), -1), citedRatio.FindAllString(string(b), -1)...) {
			if cited++; !known[figure] {
				t.Errorf("%s cites %s, which is no claim of a file in results", filepath.Base(path), figure)
			}
		}
	}
	if cited == 0 {
		t.Error("README cites no figure")
	}
}
