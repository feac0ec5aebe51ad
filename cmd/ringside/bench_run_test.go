// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// TestPartialRunIsLabelled prints a run that was interrupted after one cell.
func TestPartialRunIsLabelled(t *testing.T) {
	samples := make([]report.Sample, 5)
	for i := range samples {
		samples[i] = report.Sample{Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 1000}}
	}
	run := &report.Run{Cells: []report.Cell{{
		Suite: "file", Workload: "randread",
		Params: report.Params{"block": 4096, "goroutines": 1, "cache": "hot"},
		Series: []report.Series{{Engine: "os", Samples: samples}, {Engine: "ringside", Samples: samples}},
	}}}
	for _, tc := range []struct {
		err     error
		partial bool
	}{{nil, false}, {context.Canceled, true}} {
		var stdout, stderr bytes.Buffer
		cmd := newRootCmd()
		cmd.SetOut(&stdout)
		cmd.SetErr(&stderr)
		if err := printRun(cmd, run, false, tc.err); err != nil {
			t.Fatal(err)
		}
		out := stdout.String()
		if strings.HasPrefix(out, "INCOMPLETE") != tc.partial || strings.Contains(out, "no difference") == tc.partial {
			t.Errorf("error %v led to\n%s", tc.err, out)
		}
		if !strings.Contains(out, "ringside_4096") {
			t.Errorf("the finished cell is missing in\n%s", out)
		}
	}
}
