// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestWatchArguments(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"bench --help", exitOK, "epoll against io_uring"},
		{"bench watch --help", exitOK, "Examples"},
		{"bench wtch", exitUsage, "did you mean watch?"},
		{"bench watch extra", exitUsage, `"extra"`},
		{"bench watch --workload sun", exitUsage, "must be events or http"},
		{"bench watch --requests 7", exitUsage, "--requests 7"},
		{"bench watch --connections 1000", exitUsage, "--connections 1000"},
		{"bench watch --engine auto", exitUsage, "must be epoll or io_uring"},
		{"bench watch --source sun", exitUsage, "--source"},
		{"bench watch --mode bevel", exitUsage, "must be edge, level or one-shot"},
		{"bench watch --active 0", exitUsage, "--active"},
		{"bench watch --idle -1", exitUsage, "--idle"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		said := stdout.String() + stderr.String()
		if code != tc.code || !strings.Contains(said, tc.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// tinyWatch are arguments of a run that only checks function, not speed.
func tinyWatch(t *testing.T, more ...string) []string {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("epoll and io_uring: Linux only")
	}
	return append([]string{"bench", "watch", "--active", "10", "--tables", "--duration", "60ms", "--pairs", "2"}, more...)
}

func TestBenchWatch(t *testing.T) {
	args := tinyWatch(t)
	ringtest.NeedRing(t)
	file := filepath.Join(t.TempDir(), "r.json")
	args = append(args, "--idle", "0,50", "--json", file)
	r := runProgram(t, args...)
	// On a busy machine writing and reading take longer than watching: see
	// workload.ErrFloor.
	for d := 100 * time.Millisecond; strings.Contains(r.stdout+r.stderr, "measure for longer") && d < 10*time.Second; d *= 2 {
		r = runProgram(t, append(args, "--duration", d.String())...)
	}
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"events, eventfds", "io_uring_edge_10 ", "epoll_edge_10_50 ", "floor ns/op", "vs epoll", "events, wakes", "p99"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Results) != 10 || len(doc.Ratios) == 0 || len(doc.Skipped) != 0 {
		t.Fatalf("%d results, %d ratios, skipped %v, %v", len(doc.Results), len(doc.Ratios), doc.Skipped, err)
	}
	for _, res := range doc.Results {
		if res.Suite != "watch" || res.Workload != "events" || res.Metrics["ns_per_op"].Min <= 0 || res.Metrics["allocs_per_op"].Median >= 0.5 {
			t.Errorf("result %+v", res)
		}
	}
}

func TestBenchWatchWithoutRing(t *testing.T) {
	args := tinyWatch(t, "--source", "wake")
	t.Setenv(features.EnvBackend, "plain")
	r := runProgram(t, args...)
	if r.code != exitOK || !strings.Contains(r.stdout, "skipped: watch events, engine io_uring: ") || strings.Contains(r.stdout, " vs ") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}

func TestBenchWatchHTTP(t *testing.T) {
	ringtest.NeedRing(t)
	if _, err := generator.Find(generator.NameAB); err != nil {
		t.Skip(err)
	}
	file := filepath.Join(t.TempDir(), "r.json")
	r := runProgram(t, tinyWatch(t, "--workload", "http", "--requests", "100", "--connections", "3", "--json", file)...)
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stdout, "http, 100 requests, 3 connections, connections kept\n") {
		t.Errorf("no table of kept connections in\n%s", r.stdout)
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Results) != 4 || len(doc.Host.Peers) != 1 {
		t.Fatalf("%+v, %v", doc, err)
	}
	for _, res := range doc.Results {
		m := res.Metrics
		if res.Workload != "http" || m["p50_us"].Min <= 0 || m["max_us"].Min < m["p99_us"].Min || m["cpu_us_per_op"].Min <= 0 {
			t.Errorf("result %+v", res)
		}
	}
}
