// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
)

func TestRingArguments(t *testing.T) {
	for _, tc := range []struct {
		args string
		code int
		says string
	}{
		{"bench ring --help", exitOK, "Examples"},
		{"bench rin", exitUsage, "did you mean ring?"},
		{"bench ring extra", exitUsage, `"extra"`},
		{"bench ring --ring wedding", exitUsage, "default or defer"},
		{"bench ring --batch 0", exitUsage, "--batch"},
		{"bench ring --batch 257", exitUsage, "between 1 and 256"},
		{"bench ring --pairs 0", exitUsage, "--pairs"},
		{"bench ring --workload dance", exitUsage, "nop or read"},
		{"bench ring --workload read --cache cold", exitUsage, "hot or direct"},
		{"bench ring --workload read --depth 0", exitUsage, "--depth"},
		{"bench ring --workload read --dir /does/not/exist", exitFailure, "--dir"},
		{"bench ring --json /does/not/exist", exitFailure, "/does/not/exist"},
	} {
		var stdout, stderr bytes.Buffer
		code := run(t.Context(), strings.Fields(tc.args), &stdout, &stderr)
		said := stdout.String() + stderr.String()
		if code != tc.code || !strings.Contains(said, tc.says) {
			t.Errorf("%q: exit %d, stdout %q, stderr %q", tc.args, code, stdout.String(), stderr.String())
		}
	}
}

// tinyRing are arguments of a run that only checks function, not speed.
func tinyRing(more ...string) []string {
	return append([]string{
		"bench", "ring", "--ring", "default", "--batch", "1,16", "--tables", "--duration", "50ms", "--pairs", "2", "--seed", "7",
	}, more...)
}

// needPeer skips the test where the program in C cannot be compiled.
func needPeer(t *testing.T) {
	t.Helper()
	p, err := liburing.Build(t.Context())
	if errors.Is(err, liburing.ErrNoCompiler) || errors.Is(err, liburing.ErrNoLibrary) {
		t.Skipf("the peer in C: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Remove(); err != nil {
		t.Error(err)
	}
}

func TestBenchRing(t *testing.T) {
	ringtest.NeedRing(t)
	needPeer(t)
	tmp, out := t.TempDir(), t.TempDir()
	t.Setenv("TMPDIR", tmp)
	jsonFile, benchFile := filepath.Join(out, "r.json"), filepath.Join(out, "r.txt")
	r := runProgram(t, tinyRing("--json", jsonFile, "--benchfmt", benchFile)...)
	if r.code != exitOK || r.stderr != "" {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	for _, want := range []string{"peers:    liburing", "seed 7", "ns/op", "vs liburing", "liburing_16", "ringside_1 ", "nop, default ring"} {
		if !strings.Contains(r.stdout, want) {
			t.Errorf("%q is missing in\n%s", want, r.stdout)
		}
	}
	wantEmpty(t, tmp)
	b, err := os.ReadFile(jsonFile)
	if err != nil {
		t.Fatal(err)
	}
	checkRingDocument(t, b)
	f, err := os.Open(benchFile)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n := benchLines(t, f); n != 8 {
		t.Errorf("%d benchmark lines, want those of two cells with two engines and two rounds", n)
	}
}

// checkRingDocument reads a result file of the tiny run.
func checkRingDocument(t *testing.T, b []byte) {
	t.Helper()
	var doc report.Document
	if err := json.Unmarshal(b, &doc); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	if len(doc.Host.Peers) != 1 || len(doc.Results) != 4 || len(doc.Skipped) != 0 {
		t.Errorf("peers %v, %d results, skipped %v", doc.Host.Peers, len(doc.Results), doc.Skipped)
	}
	for _, r := range doc.Results {
		if r.Suite != "ring" || r.Workload != "nop" || r.Params["ring"] != "default" || r.Metrics["ns_per_op"].Median <= 0 {
			t.Errorf("result %+v", r)
		}
	}
	ratios := 0
	for _, r := range doc.Ratios {
		if r.Engine == engine.NameRingside && r.Against == liburing.Name && r.Metric == "ns_per_op" && r.Ratio > 0 {
			ratios++
		}
	}
	if ratios != 2 {
		t.Errorf("%d ratios of two cells: %v", ratios, doc.Ratios)
	}
}

func TestBenchRingReads(t *testing.T) {
	ringtest.NeedRing(t)
	dir := t.TempDir()
	r := runProgram(t, "bench", "ring", "--workload", "read", "--cache", "hot", "--ring", "default", "--depth", "1,32",
		"--tables", "--duration", "20ms", "--pairs", "1", "--dir", dir)
	if r.code != exitOK || !strings.Contains(r.stdout, "ringside_32") || !strings.Contains(r.stdout, "read, page cache hot, default ring") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	wantEmpty(t, dir)
}

func TestBenchRingWithoutCompiler(t *testing.T) {
	ringtest.NeedRing(t)
	t.Setenv("PATH", t.TempDir())
	r := runProgram(t, tinyRing()...)
	if r.code != exitOK || !strings.Contains(r.stdout, "ringside_16") {
		t.Fatalf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
	if !strings.Contains(r.stdout, "skipped: ring nop, engine liburing: there is no C compiler (Debian: apt-get install") {
		t.Errorf("the missing compiler is not named in\n%s", r.stdout)
	}
	if strings.Contains(r.stdout, " vs ") {
		t.Errorf("ringside is compared with no other engine in\n%s", r.stdout)
	}
}

func TestBenchRingWithoutRing(t *testing.T) {
	t.Setenv(features.EnvBackend, "plain")
	r := runProgram(t, tinyRing()...)
	if r.code != exitFailure || !strings.Contains(r.stderr, "skipped: ring nop, default ring: io_uring is forbidden") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}
