// SPDX-License-Identifier: MIT

package main

import (
	"cmp"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/internal/overlay"
)

// rates and tails match what load generators print.
var (
	rates = regexp.MustCompile(`(?i)(?:requests/sec|requests per second|throughput)\D*?([\d.,]+)|([\d.,]+)\s*(?:requests|req|reqs|ops|op|reads|writes|queries|transactions|messages|msgs|files)\s*(?:/|per )\s*s`)
	tails = regexp.MustCompile(`(?i)\b(?:p99|99(?:\.0*)?%)(?:ile)?[^\d\n]*([\d.]+)\s*(us|µs|ms|s|ns)?\b`)
)

// metrics reads the output of the load. Without a rate, the load itself is one operation.
func metrics(out string, took, cpu time.Duration) map[string]float64 {
	s := map[string]float64{measure.OpsPerS: 1 / took.Seconds()}
	ops := 1.0
	if m := rates.FindStringSubmatch(out); m != nil {
		if rate, err := strconv.ParseFloat(strings.ReplaceAll(cmp.Or(m[1], m[2]), ",", ""), 64); err == nil && rate > 0 {
			s[measure.OpsPerS], ops = rate, rate*took.Seconds()
		}
	}
	if ops == 1 {
		s[measure.NsPerOp] = float64(took)
	}
	if cpu > 0 {
		s[measure.CPUUsPerOp] = cpu.Seconds() * 1e6 / ops
	}
	if m := tails.FindStringSubmatch(out); m != nil {
		unit := map[string]float64{"ns": 1e-3, "us": 1, "µs": 1, "ms": 1e3, "s": 1e6, "": 1e3}[strings.ToLower(m[2])]
		if v, err := strconv.ParseFloat(m[1], 64); err == nil && v > 0 {
			s[measure.P99Us] = v * unit
		}
	}
	return s
}

// listed lists the metrics of a start.
func listed(s map[string]float64) string {
	words := []string{fmt.Sprintf("%.6g/s", s[measure.OpsPerS])}
	if ns, timed := s[measure.NsPerOp]; timed {
		words[0] = time.Duration(ns).Round(time.Millisecond).String()
	}
	for _, m := range [][2]string{{measure.CPUUsPerOp, "CPU"}, {measure.P99Us, "p99"}} {
		if us, ok := s[m[0]]; ok {
			words = append(words, fmt.Sprintf("%s %.3g ms", m[1], us/1000))
		}
	}
	return strings.Join(words, ", ")
}

// logSuffix ends the name of the file to which a program writes what it used.
const logSuffix = ".used"

// usedNote says which packages the program used, with which backend.
func usedNote(path string, o overlay.Options) string {
	text, _ := os.ReadFile(path)
	used := slices.Compact(slices.Sorted(strings.Lines(string(text))))
	if len(used) > 0 {
		return "the program used " + strings.ReplaceAll(strings.TrimSpace(strings.Join(used, "")), "\n", "; ")
	}
	if o.Sockets {
		return "the program did not use ringside: it opened no TCP or Unix socket, and read no file at an offset"
	}
	return "the program did not use ringside: it read no file at an offset (ReadAt of os.File)"
}

// result is what the starts have shown, as a run of bench.
func (t *trial) result(samples [2][]report.Sample) *report.Run {
	run := &report.Run{Host: hostinfo.Collect("")}
	run.Host.Pairs = t.starts
	params := report.Params{"program": strings.Join(append([]string{t.pkg}, t.args...), " "), "changes": "files"}
	switch {
	case t.options.Sockets && t.options.Files:
		params["changes"] = "files and sockets"
	case t.options.Sockets:
		params["changes"] = "sockets"
	}
	if t.null {
		params["changes"] = "nothing: null"
	}
	if t.load != "" {
		params["load"] = t.load
	}
	run.Cells = []report.Cell{{
		Suite: report.Try, Workload: "program", Params: params,
		Series: []report.Series{{Engine: "go", Samples: samples[0]}, {Engine: "ringside", Samples: samples[1]}},
	}}
	return run
}

// answer is the result in words.
func answer(run *report.Run) string {
	c := run.Claims()[0]
	rate, cpu, p99 := c.Told()
	rated, name := c.Rate, "rate"
	if _, timed := run.Cells[0].Series[0].Samples[0].Metrics[measure.NsPerOp]; timed {
		name = "time"
		rated.Ratio, rated.Low, rated.High = 1/c.Rate.Ratio, 1/c.Rate.High, 1/c.Rate.Low
	}
	var lines, gains, losses []string
	wide := false
	for _, m := range []struct {
		name         string
		interval     report.Interval
		told, better bool
	}{
		{name, rated, rate, c.Rate.Ratio > 1}, {"CPU time", c.CPU, cpu, c.CPU.Ratio < 1},
		{"p99 of latency", c.P99, p99, c.P99.Ratio < 1},
	} {
		if m.interval.Ratio == 0 {
			continue // unknown
		}
		lines = append(lines, fmt.Sprintf("  %-15s %s of go build's\n", m.name, m.interval))
		words := fmt.Sprintf("%s %.2fx", m.name, m.interval.Ratio)
		wide = wide || m.name != "p99 of latency" && (m.interval.Low < 0.9 || m.interval.High > 1.1)
		switch {
		case m.told && m.better:
			gains = append(gains, words)
		case m.told:
			losses = append(losses, words)
		}
	}
	verdict := "No gain here: these starts show no difference."
	switch {
	case len(gains) > 0 && len(losses) > 0:
		verdict = "It depends: better in " + strings.Join(gains, ", ") + "; worse in " + strings.Join(losses, ", ") + "."
	case len(gains) > 0:
		verdict = "Gain: " + strings.Join(gains, ", ") + "."
	case len(losses) > 0:
		verdict = "Loss: " + strings.Join(losses, ", ") + "."
	case wide:
		verdict += " The intervals are wide: set a higher --starts, or use a quieter machine."
	}
	for _, note := range run.Notes {
		lines = append(lines, "note: "+note+"\n")
	}
	return verdict + "\n" + strings.Join(lines, "")
}
