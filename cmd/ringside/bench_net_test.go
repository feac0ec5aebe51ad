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

	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

func TestNetArguments(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"bench net --help", exitOK, "Examples"},
		{"bench net extra", exitUsage, `"extra"`},
		{"bench net --connections 0", exitUsage, "--connections"},
		{"bench net --size 0", exitUsage, "--size"},
		{"bench net --engine abacus", exitUsage, "must be std, "},
		{"bench net --workload sums", exitUsage, "must be echo, handlers, computing, pipeline, stream, churn, dial, unix, udp, udp-bulk, tls, http, fasthttp or idle"},
		{"bench net --workload http --client curl", exitUsage, "must be own, ab, ab-k or wrk"},
		{"bench net --workload http --engine gnet", exitUsage, "not for the chosen workloads"},
		{"bench net --procs -1", exitUsage, "--procs"},
		{"bench-echo-server {", exitUsage, "setup"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		said := stdout.String() + stderr.String()
		if code != tc.code || !strings.Contains(said, tc.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

func TestBenchNet(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the load generator, which needs epoll")
	}
	file := filepath.Join(t.TempDir(), "r.json")
	r := runProgram(t, "bench", "net", "--connections", "2,20", "--size", "100", "--engine", "std,ringside-event",
		"--tables", "--duration", "30ms", "--pairs", "2", "--json", file)
	if r.code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"echo, 100 B", "ringside-event_20", "vs std", "CPU", "open unet/event instead of package net"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Results) != 4 || len(doc.Ratios) == 0 || doc.Results[0].Suite != "net" {
		t.Errorf("%d results, %d ratios, %v", len(doc.Results), len(doc.Ratios), err)
	}
}

// TestBenchNetWorkloads runs each of the other workloads once.
func TestBenchNetWorkloads(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("needs the load generator, which needs epoll")
	}
	file := filepath.Join(t.TempDir(), "r.json")
	r := runProgram(t, "bench", "net", "--workload", "echo,handlers,computing,dial,http,idle", "--connections", "3", "--engine", "std,ringside-conn", "--procs", "1",
		"--size", "100", "--tables", "--duration", "10ms", "--idle-for", "10ms", "--pairs", "1", "--json", file)
	if r.code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{
		"echo, 100 B, GOMAXPROCS 1", "handlers, 3 connections, 100 B", "ringside-conn_sleep_500µs", "computing, 100 B, GOMAXPROCS 1",
		"ringside-conn_3_1 ", "computed/s", "dial, 100 B, GOMAXPROCS 1", "http, 100 B, own load generator", "idle, GOMAXPROCS 1",
		"RSS B/conn",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := report.ReadDocument(bytes.NewReader(b))
	if err != nil || len(doc.Results) != 2*(1+4+1+1+2+1) {
		t.Errorf("%d results, %v", len(doc.Results), err)
	}
}

// TestBenchNetWithClient uses another project's load generator.
func TestBenchNetWithClient(t *testing.T) {
	path, err := generator.Find(generator.NameABKeep)
	if err != nil || testing.Short() || runtime.GOOS != "linux" {
		t.Skipf("%s: %v", path, err)
	}
	r := runProgram(t, "bench", "net", "--workload", "http", "--client", "ab-k", "--connections", "3", "--engine", "ringside-conn",
		"--tables", "--duration", "10ms", "--pairs", "1")
	if r.code != exitOK || !strings.Contains(r.stdout, "http, 128 B, ab-k") || !strings.Contains(r.stdout, "ApacheBench") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}
