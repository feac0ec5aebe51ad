// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRestore writes a result file, reads it and writes it again: no data is lost.
func TestRestore(t *testing.T) {
	want, err := os.ReadFile("testdata/run.json")
	if err != nil {
		t.Fatal(err)
	}
	d, err := ReadDocument(bytes.NewReader(want))
	if err != nil {
		t.Fatal(err)
	}
	run, err := d.Run()
	if err != nil {
		t.Fatal(err)
	}
	var got bytes.Buffer
	if err := run.WriteJSON(&got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got.String()); diff != "" {
		t.Errorf("a result file changes when it is read (-want +got)\n%s", diff)
	}
	d.Results[0].Samples = nil
	if _, err := d.Run(); !errors.Is(err, ErrNoSamples) {
		t.Errorf("without samples: %v", err)
	}
	d.Results = d.Results[1:]
	d.Results[0].Samples["p99_us"] = []float64{1}
	if _, err := d.Run(); err == nil || !strings.Contains(err.Error(), "samples of") {
		t.Errorf("with samples missing: %v", err)
	}
}

// TestParamsStayWhole checks that a parameter keeps its text: a block of 1 MiB does not
// become 1.048576e+06.
func TestParamsStayWhole(t *testing.T) {
	var p Params
	if err := json.Unmarshal([]byte(`{"block": 1048576, "share": 0.5, "cache": "hot", "kept": true}`), &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Params{"block": 1 << 20, "share": 0.5, "cache": "hot", "kept": true}, p); diff != "" {
		t.Error(diff)
	}
	c := Cell{Workload: "randread", Params: p}
	if got := c.benchName("os", 1); !strings.Contains(got, "/block=1048576/") {
		t.Error(got)
	}
	if err := json.Unmarshal([]byte(`[1]`), &p); err == nil {
		t.Error("a list is no parameters")
	}
}
