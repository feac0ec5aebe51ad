// SPDX-License-Identifier: MIT

package apps

import (
	"context"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// drive calls over all connections until the window ends.
func (j Job) drive(ctx context.Context, all []caller) (res loadgen.Result, err error) {
	begin := time.Now().Add(j.Warm)
	end := begin.Add(j.Measure)
	group, ctx := errgroup.WithContext(ctx)
	hists := make([]*hdrhistogram.Histogram, len(all)*max(j.Calls, 1))
	for i := range hists {
		h := newHist()
		hists[i] = h
		group.Go(func() error { return record(ctx, all[i%len(all)], h, begin, end) })
	}
	if err := group.Wait(); err != nil {
		return res, err
	}
	h := newHist()
	for _, part := range hists {
		h.Merge(part)
	}
	if h.TotalCount() == 0 {
		return res, fmt.Errorf("%s: no call ended in %v", j.App, j.Measure)
	}
	return loadgen.Result{
		Ops: h.TotalCount(), Elapsed: j.Measure, By: j.App,
		P50: time.Duration(h.ValueAtQuantile(50)), P99: time.Duration(h.ValueAtQuantile(99)), Max: time.Duration(h.Max()),
	}, nil
}

// newHist returns a histogram of latencies in nanoseconds.
func newHist() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, int64(time.Minute), 3)
}

// record calls until the end, and records the calls that end in the window.
func record(ctx context.Context, c caller, h *hdrhistogram.Histogram, begin, end time.Time) error {
	for {
		from := time.Now()
		if err := c.call(ctx); err != nil {
			return err
		}
		to := time.Now()
		switch {
		case !to.Before(end):
			return nil
		case to.Before(begin):
			continue
		}
		if err := h.RecordValue(int64(to.Sub(from))); err != nil {
			return err
		}
	}
}
