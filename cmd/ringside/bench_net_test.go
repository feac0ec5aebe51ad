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
		{"bench net --engine abacus", exitUsage, "must be one of"},
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
		"--duration", "30ms", "--pairs", "2", "--json", file)
	if r.code != exitOK {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"echo, 100 B", "ringside-event_20", "ops/s vs std", "CPU"} {
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
