// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
)

func TestSQLiteArguments(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"bench --help", exitOK, "the default VFS against sqlitevfs"},
		{"bench sqlite --help", exitOK, "synchronous=FULL throughout"},
		{"bench sqlit", exitUsage, "did you mean sqlite?"},
		{"bench sqlite extra", exitUsage, `"extra"`},
		{"bench sqlite --workload sun", exitUsage, "must be speed, tenants or cold"},
		{"bench sqlite --engine os", exitUsage, "must be memory, default,"},
		{"bench sqlite --journal paper", exitUsage, "must be rollback, delete-extra, persist, wal or wal-normal"},
		{"bench sqlite --cold make", exitUsage, "must be scan,"},
		{"bench sqlite --databases 0", exitUsage, "--databases 0"},
		{"bench sqlite --scale -1", exitUsage, "--scale"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		said := stdout.String() + stderr.String()
		if code != tc.code || !strings.Contains(said, tc.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// tinySQLite are arguments of a run that only checks function, not speed.
func tinySQLite(dir string, more ...string) []string {
	return append([]string{
		"bench", "sqlite", "--dir", dir, "--engine", "default,ringside", "--journal", "wal",
		"--tables", "--scale", "1", "--pairs", "1", "--duration", "20ms",
	}, more...)
}

func TestBenchSQLite(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for several seconds: not with -short")
	}
	dir, file := t.TempDir(), filepath.Join(t.TempDir(), "r.json")
	r := runProgram(t, tinySQLite(dir, "--workload", "speed,tenants,cold", "--databases", "2", "--cold", "range", "--json", file)...)
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{
		"test 1: INSERTs", "ms/op", "vs default", "default-wal", "ringside-wal", "test 16: DROP TABLE",
		"tenants, wal", "ringside_2_1", "p99 µs", "threads",
	} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil || len(doc.Ratios) == 0 || doc.Schema != report.SchemaVersion {
		t.Fatalf("%d ratios, %v", len(doc.Ratios), err)
	}
	seen := map[string]int{}
	for _, res := range doc.Results {
		seen[res.Workload]++
		if m := res.Metrics; res.Suite != "sqlite" || m["ns_per_op"].Min <= 0 || res.Workload == "tenants" && m["p99_us"].Min <= 0 {
			t.Errorf("result %+v", res)
		}
	}
	cold := 2
	if len(doc.Skipped) > 0 { // A temporary directory in memory is never cold.
		cold = 0
	}
	if seen["speed"] != 2*16 || seen["tenants"] != 3*2 || seen["cold"] != cold {
		t.Errorf("results %v, skipped %v", seen, doc.Skipped)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}

// TestBenchSQLiteWithoutRing measures where the VFS has no ring.
func TestBenchSQLiteWithoutRing(t *testing.T) {
	if testing.Short() {
		t.Skip("runs processes for several seconds: not with -short")
	}
	t.Setenv(features.EnvBackend, "plain")
	t.Chdir(t.TempDir()) // A relative --dir also works.
	r := runProgram(t, tinySQLite(".", "--workload", "tenants", "--databases", "1")...)
	if r.code != exitOK || !strings.Contains(r.stdout, "ringside_1") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}
