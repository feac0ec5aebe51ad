// SPDX-License-Identifier: MIT

package apps

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sync/errgroup"

	"github.com/ringside-io/ringside/cmd/internal/loadgen"
)

// drive calls over all connections until the window ends.
func (j Job) drive(ctx context.Context, all []caller) (res loadgen.Result, err error) {
	begin := time.Now().Add(j.Warm)
	end := begin.Add(j.Measure)
	h := latencies{Histogram: hdrhistogram.New(1, int64(time.Minute), 3)}
	group, ctx := errgroup.WithContext(ctx)
	for i := range len(all) * max(j.Calls, 1) {
		group.Go(func() error { return h.record(ctx, all[i%len(all)], begin, end) })
	}
	if err := group.Wait(); err != nil {
		return res, err
	}
	if h.TotalCount() == 0 {
		return res, fmt.Errorf("%s: no call ended in %v", j.App, j.Measure)
	}
	return loadgen.Result{
		Ops: h.TotalCount(), Elapsed: j.Measure, By: j.App,
		P50: time.Duration(h.ValueAtQuantile(50)), P99: time.Duration(h.ValueAtQuantile(99)), Max: time.Duration(h.Max()),
	}, nil
}

// latencies is a histogram of nanoseconds.
type latencies struct {
	mu sync.Mutex
	*hdrhistogram.Histogram
}

// record calls until the end, and records the calls that end in the window.
func (h *latencies) record(ctx context.Context, c caller, begin, end time.Time) error {
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
		h.mu.Lock()
		err := h.RecordValue(int64(to.Sub(from)))
		h.mu.Unlock()
		if err != nil {
			return err
		}
	}
}
