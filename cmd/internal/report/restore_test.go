// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRestore writes a result file, reads it and writes what came of it: nothing is lost.
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
