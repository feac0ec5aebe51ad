// SPDX-License-Identifier: MIT

package htmlreport

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// series has five samples around these values.
func series(engine string, rate, cpu, p50 float64) report.Series {
	s := report.Series{Engine: engine}
	for _, f := range []float64{1, 1.02, 0.98, 1.01, 0.99} {
		s.Samples = append(s.Samples, report.Sample{Start: len(s.Samples), Iterations: 1, Metrics: map[string]float64{
			measure.OpsPerS: rate * f, measure.NsPerOp: 1e9 / (rate * f), measure.CPUUsPerOp: cpu * f,
			measure.P50Us: p50 * f, measure.P99Us: 5 * p50 * f, measure.MaxUs: 20 * p50 * f,
		}})
	}
	return s
}

// colors is the number of engines that have a color of their own, or a color with other marks.
const colors = 16

// sample is a run of three suites, with names that a page must escape.
func sample() *report.Run {
	r := &report.Run{
		Host:    report.Host{Time: "2026-01-02T03:04:05Z", OS: "linux", Arch: "amd64", Kernel: "6.18 <b>&", Cores: 2, GOMAXPROCS: 2, Pairs: 5},
		Notes:   []string{`the machine is "busy" <script>alert(1)</script>`},
		Skipped: []report.Skip{{Suite: "net", Engine: "liburing", Reason: "no C compiler"}},
	}
	for i, n := range []int{1, 32, 128} {
		k := float64(i + 1)
		r.Cells = append(r.Cells, report.Cell{
			Suite: "file", Workload: "randread", Params: report.Params{"cache": "direct", "block": 4096, "goroutines": n},
			Series: []report.Series{series("os", 1000*k, 20, 100), series("ringside", 1500*k, 10, 80)},
		})
	}
	for _, n := range []int{1, 10, 100} {
		many := report.Cell{Suite: "net", Workload: "stream", Params: report.Params{"connections": n}}
		for i := range colors {
			many.Series = append(many.Series, series(fmt.Sprintf("engine-%d", i), 1e5, 5, 50))
		}
		r.Cells = append(r.Cells, many)
	}
	for _, n := range []int{10, 100} {
		r.Cells = append(r.Cells, report.Cell{
			Suite: "net", Workload: "echo", Params: report.Params{"connections": n, "size": 128},
			Series: []report.Series{series("std", 1e5, 5, 50), series("ringside-conn", 0.8e5, 6, 60), series("ringside-event", 1.4e5, 3, 40)},
		})
	}
	for n := 1; n <= 16; n++ {
		r.Cells = append(r.Cells, report.Cell{
			Suite: "sqlite", Workload: "speed", Params: report.Params{"test": n},
			Series: []report.Series{series("memory", 2000, 1, 1), series("default-wal", 1000, 1, 1), series("ringside-wal", 1010, 1, 1)},
		})
	}
	return r
}

func render(t *testing.T, r *report.Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestColors(t *testing.T) {
	for i := range colors {
		if want := fmt.Sprintf(".c%d { --c: #", i); !strings.Contains(render(t, sample()), want) {
			t.Errorf("the style sheet has no %q", want)
		}
	}
}

func TestPage(t *testing.T) {
	page := strings.ReplaceAll(render(t, sample()), "\u00a0", " ")
	for _, want := range []string{
		"ufile instead of os.File", "random reads, O_DIRECT, 32 goroutines, 4 KiB", "1.50x (1.50–1.50)", // answers
		"unet instead of package net", `<tr class="loss">`, "Of 8 questions 5 gain, 2 lose, 1 makes no difference, 0 are open.",
		"SQLite&#39;s speed tests, wal", "latency at 128 goroutines", "operations per second by goroutines", // pictures
		"6.18 &lt;b&gt;&amp;", "no C compiler", "&lt;script&gt;", "prefers-color-scheme: dark",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q in the page", want)
		}
	}
	if strings.Contains(page, "<script") {
		t.Error("the page has a script, want none")
	}
	if m := regexp.MustCompile(`(?:src|href|url\()\s*=?\s*["']?(?:https?:)?//[^"'\s]*`).FindString(page); m != "" {
		t.Errorf("the page needs the network: %s", m)
	}
	if strings.Contains(page, `<th scope="col"></th>`) {
		t.Error("a column without a name")
	}
	regions := map[string]bool{}
	for _, m := range regexp.MustCompile(`role="region" aria-label="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		if regions[m[1]] {
			t.Errorf("two tables are called %q", m[1])
		}
		regions[m[1]] = true
	}
	ranges, tables := strings.Count(page, `<table class="ranges">`), strings.Count(page, "<table>")
	curves, labels := strings.Count(page, `<svg class="curves"`), strings.Count(page, `role="img" aria-label="`)
	if ranges < 5 || curves != 4 || labels != curves || tables < 5 {
		t.Errorf("%d pictures of ranges, %d of curves, %d with a description; %d tables", ranges, curves, labels, tables)
	}
}

// TestPictures parses each picture: it is valid XML, and its text is escaped.
func TestPictures(t *testing.T) {
	page := render(t, sample())
	found := regexp.MustCompile(`(?s)<svg .*?</svg>`).FindAllString(page, -1)
	for _, svg := range found {
		d := xml.NewDecoder(strings.NewReader(svg))
		for {
			_, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%v in\n%s", err, svg)
			}
		}
		if strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
			t.Errorf("a picture has a point without a position:\n%s", svg)
		}
	}
}

// TestSmallRuns writes pages of runs in which almost all parts are missing.
func TestSmallRuns(t *testing.T) {
	bare := report.Series{Engine: "os", Samples: []report.Sample{{Metrics: map[string]float64{measure.OpsPerS: 1}}}}
	zero := report.Series{Engine: "ringside", Samples: []report.Sample{{Metrics: map[string]float64{measure.OpsPerS: 0, measure.P50Us: 0, measure.P99Us: 0, measure.MaxUs: 0}}}}
	for name, r := range map[string]*report.Run{
		"nothing":  {},
		"one cell": {Cells: []report.Cell{{Suite: "file", Workload: "randread", Params: report.Params{"goroutines": 1}, Series: []report.Series{bare}}}},
		"zeros":    {Cells: []report.Cell{{Suite: "file", Workload: "x", Params: report.Params{"goroutines": 1}, Series: []report.Series{bare, zero}}, {Suite: "file", Workload: "x", Params: report.Params{"goroutines": 2}, Series: []report.Series{bare, zero}}}},
		"unknown":  {Cells: []report.Cell{{Suite: "ring", Workload: "nop", Params: report.Params{"batch": 1.0, "ring": "default"}, Series: []report.Series{bare}}}},
	} {
		if page := render(t, r); !strings.Contains(page, "</html>") || strings.Contains(page, "NaN") {
			t.Errorf("%s: %s", name, page)
		}
	}
}
