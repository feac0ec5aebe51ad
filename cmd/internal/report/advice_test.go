// SPDX-License-Identifier: MIT

package report

import (
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// duel is a cell in which the second engine has these ratios of rate and processor time.
func duel(suite, workload string, p Params, engines [2]string, rate, cpu []float64) Cell {
	a, b := Series{Engine: engines[0]}, Series{Engine: engines[1]}
	for i := range rate {
		a.Samples = append(a.Samples, Sample{Metrics: map[string]float64{measure.OpsPerS: 1000, measure.CPUUsPerOp: 10}})
		b.Samples = append(b.Samples, Sample{Metrics: map[string]float64{measure.OpsPerS: 1000 * rate[i], measure.CPUUsPerOp: 10 * cpu[i]}})
	}
	return Cell{Suite: suite, Workload: workload, Params: p, Series: []Series{a, b}}
}

func TestAdvise(t *testing.T) {
	var (
		even   = []float64{1, 1.02, 0.98, 1.01, 0.99}
		double = []float64{2, 2.1, 1.9, 2, 2.05}
		half   = []float64{0.5, 0.52, 0.49, 0.5, 0.51}
		files  = [2]string{"os", "ringside"}
		echoes = [2]string{"std", "ringside-conn"}
	)
	file := func(goroutines int, rate, cpu []float64) Cell {
		return duel("file", "randread", Params{"cache": "direct", "goroutines": goroutines, "block": 4096}, files, rate, cpu)
	}
	r := Run{Cells: []Cell{
		file(512, []float64{0.5, 2, 1, 3, 0.7}, even), file(128, double, half), file(32, even, half), file(1, even, even), file(8, half, double),
		duel("net", "echo", Params{"connections": 100, "size": 128}, echoes, double, even),
		duel("net", "echo", Params{"connections": 1, "size": 128}, [2]string{"std", "ringside-event"}, even[:3], even[:3]),
	}}
	for _, n := range []int{2, 3, 4, 7} {
		r.Cells = append(r.Cells, duel("sqlite", "speed", Params{"test": n}, [2]string{"default-wal", "ringside-wal"}, even, even))
	}
	var got []string
	for _, a := range r.Advise() {
		got = append(got, a.Lines()...)
	}
	want := []string{
		"ufile instead of os.File",
		"yes: random reads, O_DIRECT, 128 goroutines, 4 KiB: 2.0 times as many, for 50 % of the CPU time each",
		"yes: random reads, O_DIRECT, 32 goroutines, 4 KiB: as many, for 50 % of the CPU time each",
		"no difference (within 10 %): random reads, O_DIRECT, 1 goroutine, 4 KiB",
		"not decided, the rounds differ too much (--pairs 10 decides more): random reads, O_DIRECT, 512 goroutines, 4 KiB",
		"no:  random reads, O_DIRECT, 8 goroutines, 4 KiB: 50 % as many, for 2.0 times the CPU time each",
		"unet (net.Conn) instead of package net",
		"yes: echoed messages, 100 connections, 128 B: 2.0 times as many",
		"unet/event (callbacks) instead of package net",
		"too few pairs to tell a difference from noise; use --pairs 4 or more",
		"sqlitevfs (vfs=ringside) instead of the default VFS",
		"no difference (within 10 %): tests 2–4 and 7 (wal)",
	}
	if g, w := strings.Join(got, "\n"), strings.Join(want, "\n"); g != w {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func TestJoinPoints(t *testing.T) {
	for want, points := range map[string][]string{
		"": nil,
		"echoed messages, 1, 10 and 50 connections, 128 B; echoed messages, 1 connection, 1 KiB": {
			"echoed messages, 10 connections, 128 B", "echoed messages, 1 connection, 128 B",
			"echoed messages, 1 connection, 1 KiB", "echoed messages, 50 connections, 128 B"},
		"tests 2–4 and 7 (wal); test 3 (rollback); other": {
			"test 2 (wal)", "test 3 (wal)", "test 3 (rollback)", "test 4 (wal)", "other", "test 7 (wal)"},
		"random reads, O_DIRECT, 32 and 128 goroutines, 4 KiB":          {"random reads, O_DIRECT, 32 goroutines, 4 KiB", "random reads, O_DIRECT, 128 goroutines, 4 KiB"},
		"commits, wal, 1 and 4 databases, 4 connections":                {"commits, wal, 1 database, 4 connections", "commits, wal, 4 databases, 4 connections"},
		"streams, 4 KiB; streams, 64 KiB; no-ops, batch 1; no-ops, 99 ": {"streams, 4 KiB", "streams, 64 KiB", "no-ops, batch 1", "no-ops, 99 "},
	} {
		if got := joinPoints(points); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// TestAdd merges the runs of two suites into one and splits it again.
func TestAdd(t *testing.T) {
	a := Run{Host: Host{Time: "t", Kernel: "6.1", Peers: []string{"p"}, Verified: true}, Cells: []Cell{{Suite: "net"}}, Notes: []string{"n"}}
	b := Run{
		Host:  Host{Time: "u", Device: "vda", Peers: []string{"p", "q"}, Verified: true},
		Cells: []Cell{{Suite: "file"}}, Notes: []string{"n", "m"}, Skipped: []Skip{{Suite: "file"}},
	}
	var all Run
	all.Add(&a)
	all.Add(&b)
	if h := all.Host; h.Time != "t" || h.Device != "vda" || len(h.Peers) != 2 || !h.Verified || len(all.Notes) != 2 {
		t.Errorf("%+v", all)
	}
	if got := strings.Join(all.Suites(), " "); got != "net file" {
		t.Errorf("suites %s", got)
	}
	if part := all.Suite("file"); len(part.Cells) != 1 || len(part.Skipped) != 1 || part.Host.Kernel != "6.1" {
		t.Errorf("%+v", part)
	}
}
