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
		s.Samples = append(s.Samples, Sample{Iterations: 1, Metrics: m})
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
				netSeries(netStd, pairs, echoMetrics(1000, 10, 500, 2)),
				netSeries(netConn, pairs, echoMetrics(1000*conn, 8, 250, 1.5)),
				netSeries(netPlain, pairs, echoMetrics(1000, 8, 250, 2.5)),
				netSeries(netEvent, pairs, echoMetrics(1600, 5, 200, 0.25)),
				netSeries(netSQPoll, pairs, echoMetrics(800, 10, 200, 0.01)),
				netSeries(netC, pairs, echoMetrics(1500, 5, 200, 0.2)),
			},
		}
	}
	idle := Cell{
		Suite: "net", Workload: "idle", Params: Params{"connections": 10_000},
		Series: []Series{
			netSeries(netStd, pairs, map[string]float64{IdleCPU: 40, WakesPerS: 2, HeapPerConn: 4000, RSSPerConn: 5000}),
			netSeries(netConn, pairs, map[string]float64{IdleCPU: 0, WakesPerS: 0, HeapPerConn: 3000, RSSPerConn: 4000}),
		},
	}
	handlers := Cell{
		Suite: "net", Workload: "handlers", Params: Params{"connections": 20, "size": 128, "handler": "sleep 500µs"},
		Series: []Series{netSeries(netStd, pairs, echoMetrics(10, 1, 1, 1)), netSeries(netConn, pairs, echoMetrics(10, 1, 1, 1))},
	}
	return &Run{Cells: []Cell{cell(1, 1.5), cell(100, 0.8), handlers, idle}}
}

func TestNetTable(t *testing.T) {
	var b bytes.Buffer
	if err := netExample(5).WriteTable(&b, NetLayout, Style{}); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"echo, 128 B\n", "ops/s             vs std  CPU µs/op  vs std", "ringside-conn_1 ", "1.50x (1.50–1.50)", "0.80x", "syscalls/op", "0.25",
		"handlers, 128 B, 20 connections\n", "std_sleep_500µs", "idle\n", "RSS B/conn", "0.75x",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if strings.Contains(text, "ns/op") || strings.Contains(text, "vs liburing") {
		t.Errorf("too much in\n%s", text)
	}
}

func TestNetSummary(t *testing.T) {
	text := strings.Join(NetLayout.Summary(netExample(5)), "\n")
	for _, want := range []string{
		"echo, 128 B: ringside-conn vs std: faster at 1 (1.50x) connections; slower at 100 (0.80x) connections; CPU per operation 0.80x; p99 0.50x",
		"echo, 128 B: ringside-event vs std: faster at 1 (1.60x) and 100 (1.60x) connections; CPU per operation 0.50x",
		"handlers, 128 B, 20 connections: ringside-conn vs std: no difference at sleep 500µs",
		"idle: ringside-conn vs std: heap and stacks 0.75x; RSS 0.80x; CPU 0 µs/s",
		"ringside-conn vs ringside-plain (what io_uring gives the Conn, beside a control with plain calls; the rest of its gain is scheduling): rate 0.80x to 1.50x",
		"ringside-event vs liburing (the callback server beside C): rate 1.07x; CPU per operation 1.00x; " +
			"system calls of ringside-event 0.25 per operation; system calls of liburing 0.20 per operation",
		"ringside-event-sqpoll vs ringside-event (what SQPOLL gives): rate 0.50x; CPU per operation 2.00x",
		"advice for echoes, by rate and CPU time against std: goroutines and Conn pay except at 100 connections of 128 B; callbacks pay everywhere",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	if few := strings.Join(NetLayout.Summary(netExample(2)), "\n"); !strings.Contains(few, "too few pairs (2)") || strings.Contains(few, "advice") {
		t.Errorf("of two pairs:\n%s", few)
	}
	if got := NetLayout.Summary(&Run{}); len(got) != 0 {
		t.Errorf("an empty run says %q", got)
	}
}
