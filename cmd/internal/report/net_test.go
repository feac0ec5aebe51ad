// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// netSeries has the given number of pairs, each a little faster than the one before.
func netSeries(engine string, pairs int, metrics map[string]float64) Series {
	s := Series{Engine: engine}
	for i := range pairs {
		m := map[string]float64{}
		for k, v := range metrics {
			m[k] = v * (1 + float64(i)/1000)
		}
		s.Samples = append(s.Samples, Sample{Start: len(s.Samples), Iterations: 1, Metrics: m})
	}
	return s
}

func echoMetrics(rate, cpu, p99, calls float64) map[string]float64 {
	return map[string]float64{measure.OpsPerS: rate, measure.CPUUsPerOp: cpu, measure.P99Us: p99, SyscallsPerOp: calls}
}

func netExample(pairs int) *Run {
	cell := func(conns int, conn float64) Cell {
		return Cell{
			Suite: "net", Workload: "echo", Params: Params{"connections": conns, "size": 128},
			Series: []Series{
				netSeries("std", pairs, echoMetrics(1000, 10, 500, 2)),
				netSeries("ringside-conn", pairs, echoMetrics(1000*conn, 8, 250, 1.5)),
				netSeries("ringside-plain", pairs, echoMetrics(1000, 8, 250, 2.5)),
				netSeries("ringside-event", pairs, echoMetrics(1600, 5, 200, 0.25)),
				netSeries("liburing", pairs, echoMetrics(1500, 5, 200, 0.2)),
			},
		}
	}
	idle := Cell{
		Suite: "net", Workload: "idle", Params: Params{"connections": 10_000},
		Series: []Series{
			netSeries("std", pairs, map[string]float64{IdleCPU: 40, WakesPerS: 2, HeapPerConn: 4000, RSSPerConn: 5000}),
			netSeries("ringside-conn", pairs, map[string]float64{IdleCPU: 0, WakesPerS: 0, HeapPerConn: 3000, RSSPerConn: 4000}),
		},
	}
	handlers := Cell{
		Suite: "net", Workload: "handlers", Params: Params{"connections": 20, "size": 128, "handler": "sleep 500µs"},
		Series: []Series{netSeries("std", pairs, echoMetrics(10, 1, 1, 1)), netSeries("ringside-conn", pairs, echoMetrics(10, 1, 1, 1))},
	}
	computing := Cell{
		Suite: "net", Workload: "computing", Params: Params{"connections": 20, "size": 128, "computing": 2},
		Series: []Series{netSeries("std", pairs, map[string]float64{measure.OpsPerS: 10, measure.UnitsPerS: 777})},
	}
	return &Run{Cells: []Cell{cell(1, 1.5), cell(100, 0.8), handlers, computing, idle}}
}

func TestNetTable(t *testing.T) {
	var b bytes.Buffer
	if err := netExample(5).WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"echo, 128 B\n", "ops/s             vs std  CPU µs/op  vs std", "ringside-conn_1 ", "1.50x (1.50–1.50)", "0.80x", "syscalls/op", "0.25",
		"handlers, 20 connections, 128 B\n", "std_sleep_500µs", "computing, 128 B\n", "engine_connections_computing ", "std_20_2 ", "computed/s", "idle\n", "RSS B/conn", "0.75x",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "ns/op") || strings.Contains(text, "vs liburing") {
		t.Errorf("unexpected text in\n%s", text)
	}
}

func TestNetAnswer(t *testing.T) {
	lines := netExample(5).Answer()
	text := strings.Join(lines, "\n")
	for _, want := range []string{
		"gain unet instead of package net, echoed messages, 1 connection, 128 B: 1.50x (1.50–1.50) CPU 0.80\n",
		"loss unet instead of package net, echoed messages, 100 connections, 128 B: 0.80x (0.80–0.80)",
		"same within 5 %: unet, requests to a handler, 20 connections, 128 B, sleep 500µs",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if len(lines) > answerLines {
		t.Errorf("%d lines", len(lines))
	}
	if few := strings.Join(netExample(2).Answer(), "\n"); !strings.Contains(few, "too few starts") || strings.Contains(few, "gain unet") {
		t.Errorf("of two pairs:\n%s", few)
	}
	if got := (&Run{}).Answer(); got != nil {
		t.Errorf("the text of an empty run is %q", got)
	}
}

// answer returns the answer of a run as text.
func answer(r *Run) string { return strings.Join(r.Answer(), "\n") }
