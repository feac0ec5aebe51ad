// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// TestPartialRunIsLabelled prints a run that was interrupted after one cell.
func TestPartialRunIsLabelled(t *testing.T) {
	samples := make([]report.Sample, 5)
	for i := range samples {
		samples[i] = report.Sample{Start: i, Iterations: 1, Metrics: map[string]float64{measure.OpsPerS: 1000}}
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
		cmd := newRootCmd(&stdout, &stderr)
		if err := printRun(cmd, run, false, true, tc.err); err != nil {
			t.Fatal(err)
		}
		out := stdout.String()
		if strings.HasPrefix(out, "INCOMPLETE") != tc.partial || !strings.Contains(out, "make no difference") && !strings.Contains(out, "makes no difference") {
			t.Errorf("error %v led to\n%s", tc.err, out)
		}
		if !strings.Contains(out, "ringside_4096") {
			t.Errorf("the finished cell is missing in\n%s", out)
		}
	}
}

// greedy is a suite that needs more space than there is.
type greedy struct {
	fakeSuite
	dir   string
	bytes int64
}

func (g *greedy) Space() (dir string, bytes int64) { return g.dir, g.bytes }

// TestRoomIsCheckedFirst checks that the space for all suites is checked before any of them
// runs.
func TestRoomIsCheckedFirst(t *testing.T) {
	dir := t.TempDir()
	a := &allBench{parts: []allPart{{b: &fakeSuite{}}, {b: &greedy{dir: dir, bytes: 4096}}, {b: &greedy{dir: dir, bytes: 1 << 60}}}}
	if err := roomFor(a); err == nil || !strings.Contains(err.Error(), "not enough space in "+dir) || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("%v", err)
	}
	a.parts = a.parts[:2]
	if err := roomFor(a); err != nil {
		t.Errorf("enough room: %v", err)
	}
	a.dir = dir + "/missing"
	if err := roomFor(a); err == nil || !strings.Contains(err.Error(), "no such directory") {
		t.Errorf("%v", err)
	}
	for _, b := range []benchmark{&fileBench{}, &sqliteBench{}} {
		if dir, bytes := b.(interface{ Space() (string, int64) }).Space(); dir == "" || bytes < 60<<20 {
			t.Errorf("%T needs %d bytes in %q", b, bytes, dir)
		}
	}
	full := fmt.Errorf("append: %w", &measure.WorkerError{Said: "write /x: no space left on device"})
	if err := outOfSpace(&sqliteBench{}, full); !errors.Is(err, full) || !strings.Contains(err.Error(), "choose another directory with --dir") {
		t.Errorf("%v", err)
	}
	said := errors.New("sqlite3: disk I/O error")
	if err := outOfSpace(&greedy{dir: dir, bytes: 1 << 60}, said); !errors.Is(err, said) || !strings.Contains(err.Error(), "with --dir") {
		t.Errorf("on a full device: %v", err)
	}
	if err := outOfSpace(&greedy{dir: dir, bytes: 4096}, said); err != said {
		t.Errorf("with room: %v", err)
	}
}
