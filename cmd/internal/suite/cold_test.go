// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/datafile"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// coldFile are options for one cell of cold reads.
func coldFile(t *testing.T) FileOptions {
	opts := smallFile(t)
	opts.Blocks, opts.Goroutines, opts.Caches, opts.Pairs = []int{4096}, []int{32}, []string{CacheCold}, 1
	return opts
}

func TestColdReadsAreCold(t *testing.T) {
	w, opts := newWorld(), coldFile(t)
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != 1 || len(run.Notes) > 0 {
		t.Fatalf("%v, notes %v", err, run.Notes)
	}
	for _, s := range run.Cells[0].Series {
		if sum, ok := s.Summary(report.DeviceShare); !ok || sum.Median != 1 {
			t.Errorf("%s: %+v", s.Engine, sum)
		}
	}
	for _, j := range w.jobs[1:] {
		if r := of[workload.RandRead](j); !r.Cold || r.Direct || r.Span != opts.Size {
			t.Errorf("job %+v", r)
		}
	}
}

func TestColdReadsThatWereNot(t *testing.T) {
	for share, says := range map[float64]string{0.5: "not cold", 1: "", 2: "read ahead"} {
		w, opts := newWorld(), coldFile(t)
		inner := w.Workers.Round
		w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
			s, err := inner(ctx, j)
			s.DeviceReads = int64(share * float64(s.Bytes))
			return s, err
		}
		run, err := File(t.Context(), opts, w.Env)
		found := strings.Contains(strings.Join(run.Notes, "\n"), says)
		if err != nil || !found || (says == "") != (len(run.Notes) == 0) {
			t.Errorf("%v of the bytes from the device: notes %v, %v", share, run.Notes, err)
		}
	}
}

func TestCacheThatCannotBeEvictedIsSkippedByName(t *testing.T) {
	w, opts := newWorld(), smallFile(t)
	w.probeEvict = func(string) error { return fmt.Errorf("%w: this is a test", datafile.ErrCached) }
	run, err := File(t.Context(), opts, w.Env)
	if err != nil || len(run.Cells) != defaultCells-3 || len(run.Skipped) != 1 || run.Skipped[0].Params["cache"] != CacheCold ||
		!strings.Contains(run.Skipped[0].Reason, "--dir") {
		t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	w.probeEvict = func(string) error { return syscall.EIO }
	if _, err := File(t.Context(), opts, w.Env); !errors.Is(err, syscall.EIO) {
		t.Errorf("a broken device: %v", err)
	}
	wantEmpty(t, opts.Dir)
}
