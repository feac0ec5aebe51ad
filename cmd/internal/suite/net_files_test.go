// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

func TestNetFiles(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	w := newNetWorld()
	inner := w.Round
	w.Round = func(ctx context.Context, s echo.Setup, p NetPeer, j loadgen.Job) (echo.Sample, error) {
		if s.Engine == echo.NameNginx {
			return echo.Sample{}, errors.New("it is not installed")
		}
		if s.Files != "" {
			if _, err := os.Stat(filepath.Join(s.Files, j.Path)); err != nil || !j.HTTP {
				t.Errorf("%+v: %v", j, err)
			}
		}
		out, err := inner(ctx, s, p, j)
		out.Answer, out.Received = 1000, 1000*out.Ops+500_000
		return out, err
	}
	o := NetOptions{Workloads: []string{nameFiles}, Sizes: []int{1, 1 << 20}, Timing: Timing{Pairs: 1}}
	run, err := Net(t.Context(), o, w.NetEnv)
	if err != nil || len(run.Cells) != 6 || len(run.Skipped) != 1 || run.Skipped[0].Engine != echo.NameNginx || len(w.jobs) != 12 {
		t.Fatalf("%d cells, skipped %v, %d jobs, %v", len(run.Cells), run.Skipped, len(w.jobs), err)
	}
	if s := run.Cells[0].Series[1].Samples[0]; s.Metrics[measure.OpsPerS] != 1500 || s.Metrics[measure.MBPerS] != 1.5 {
		t.Errorf("responses that ended outside of the window are not counted in part: %v", s.Metrics)
	}
	for _, j := range w.jobs {
		if large := j.Path == "/1048576.jpg"; j.Discard != large || (j.Measure > 200*time.Millisecond) != (large && j.Connections == 256) {
			t.Errorf("%+v", j)
		}
	}
	if left, _ := filepath.Glob(filepath.Join(os.TempDir(), "*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestNetFilesGrid(t *testing.T) {
	cells := NetOptions{Workloads: []string{nameFiles}}.withDefaults().cells()
	if len(cells) != 11 {
		t.Errorf("%d cells", len(cells))
	}
	if err := (NetOptions{Workloads: []string{nameFiles}, Sizes: []int{64 << 20}}).Validate(); err != nil {
		t.Error(err)
	}
	if (NetOptions{Workloads: []string{nameFiles}, Engines: []string{echo.NameEvent}}).Validate() == nil {
		t.Error("an engine that serves no files was accepted")
	}
}
