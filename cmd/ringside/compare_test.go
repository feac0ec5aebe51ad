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
)

// resultFile writes a file with one engine at about this rate.
func resultFile(t *testing.T, rate float64) string {
	t.Helper()
	s := report.Series{Engine: "ringside"}
	for i := range 5 {
		s.Samples = append(s.Samples, report.Sample{Start: len(s.Samples), Iterations: 1, Metrics: map[string]float64{"ops_per_s": rate + float64(i)}})
	}
	r := report.Run{Cells: []report.Cell{{Suite: "ring", Workload: "nop", Series: []report.Series{s}}}}
	path := filepath.Join(t.TempDir(), "r.json")
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCompareCommand(t *testing.T) {
	slow, fast := resultFile(t, 1000), resultFile(t, 2000)
	bad := filepath.Join(t.TempDir(), "bad.json")
	if err := os.WriteFile(bad, []byte(`{"schema":99}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args []string
		code int
		says string
	}{
		{[]string{slow, fast}, exitOK, "1 better, 0 worse"},
		{[]string{"--fail", slow, fast}, exitOK, "1 better"},
		{[]string{"--fail", fast, slow}, exitFailure, "0 better, 1 worse"},
		{[]string{slow}, exitUsage, "takes two result files"},
		{[]string{slow, "/nonexistent.json"}, exitFailure, "no such file"},
		{[]string{slow, bad}, exitFailure, "newer ringside"},
	} {
		var out, errs bytes.Buffer
		code := run(t.Context(), append([]string{"compare"}, test.args...), &out, &errs)
		if code != test.code || !strings.Contains(out.String()+errs.String(), test.says) {
			t.Errorf("compare %q: exit %d, want %d with %q:\n%s%s", test.args, code, test.code, test.says, &out, &errs)
		}
	}
	var out, errs bytes.Buffer
	var c report.Comparison
	if code := run(t.Context(), []string{"compare", "--json", slow, fast}, &out, &errs); code != exitOK {
		t.Fatalf("exit %d: %s", code, &errs)
	}
	if err := json.Unmarshal(out.Bytes(), &c); err != nil || len(c.Changes) != 1 || c.Changes[0].Verdict != report.Better {
		t.Errorf("--json: %v, %+v", err, c.Changes)
	}
}
