// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/workload"
	"github.com/ringside-io/ringside/watch"
)

// watchWorld is a Env in which everything works, rounds take no time, and jobs are recorded.
type watchWorld struct {
	Env
	jobs    []workload.Job
	refuses string // the engine that cannot be used
	limit   int    // of descriptors
}

func newWatchWorld() *watchWorld {
	w := &watchWorld{}
	w.Env = Env{
		Workers: Workers{Round: w.round},
		machine: machine{
			probeWatch: func(engine string) error {
				if engine == w.refuses {
					return errors.New("forbidden")
				}
				return nil
			},
			findClient: func(_ context.Context, client string) (path, version string, err error) {
				return "/bin/" + client, client + " 1", nil
			},
			descriptors: func() int { return w.limit },
		},
	}
	return w
}

func (w *watchWorld) round(ctx context.Context, j workload.Job) (measure.Sample, error) {
	if ctx.Err() != nil {
		return measure.Sample{}, ctx.Err()
	}
	w.jobs = append(w.jobs, j)
	s := measure.Sample{Ops: 1000, Elapsed: 200 * time.Microsecond, Floor: time.Millisecond, Heap: &measure.Heap{}}
	if j.Engine == "io_uring" {
		s.Elapsed /= 2
	}
	return s, nil
}

func TestWatchMeasuresTheDefaultPoints(t *testing.T) {
	w := newWatchWorld()
	run, err := Watch(t.Context(), WatchOptions{Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Skipped) != 0 || len(run.Cells) != 9 || len(w.jobs) != 9*2*5 {
		t.Fatalf("%d cells, %d rounds, skipped %v, %v", len(run.Cells), len(w.jobs), run.Skipped, err)
	}
	if h := run.Host; h.Pairs != 5 || h.DurationMs != 200 {
		t.Errorf("host %+v", h)
	}
	cells := []workload.Watch{
		{Source: "eventfd", Mode: watch.Edge, Active: 1},
		{Source: "eventfd", Mode: watch.Edge, Active: 10},
		{Source: "eventfd", Mode: watch.Edge, Active: 100},
		{Source: "eventfd", Mode: watch.Edge, Active: 100, Idle: 10_000},
		{Source: "eventfd", Mode: watch.Edge, Active: 1000},
		{Source: "eventfd", Mode: watch.Level, Active: 100},
		{Source: "eventfd", Mode: watch.OneShot, Active: 100},
		{Source: "socketpair", Mode: watch.Edge, Active: 100},
		{Source: "wake"},
	}
	for i, j := range w.jobs {
		if j.Engine != inTurn(i, 5, watchEngines...) || *of[workload.Watch](j) != cells[i/10] || j.Suite != "watch" || j.Workload != "events" ||
			j.Measure != 200*time.Millisecond || j.Warm <= 0 {
			t.Fatalf("round %d: %+v of %+v", i, j, *of[workload.Watch](j))
		}
	}
	m := run.Cells[0].Series[1].Samples[0].Metrics
	if m[measure.NsPerOp] != 100 || m[measure.FloorNsPerOp] != 1000 || m[measure.AllocsPerOp] != 0 {
		t.Errorf("metrics %v", m)
	}
	found := false
	for _, r := range run.Document().Ratios {
		if r.Suite != "watch" || r.Engine != "io_uring" || r.Against != "epoll" {
			t.Errorf("ratio %+v", r)
		}
		found = found || r.Metric == measure.NsPerOp && math.Abs(r.Ratio-0.5) < 1e-9
	}
	if !found {
		t.Error("no ratio of the time of an event")
	}
}

func TestWatchAsksTheWebServer(t *testing.T) {
	w := newWatchWorld()
	run, err := Watch(t.Context(), WatchOptions{Workloads: []string{"http"}, Requests: 500, Timing: Timing{Pairs: 2}}, w.Env)
	if err != nil || len(run.Cells) != 2 || len(w.jobs) != 2*2*2 {
		t.Fatalf("%d cells, %d rounds, %v", len(run.Cells), len(w.jobs), err)
	}
	if h := run.Host; h.DurationMs != 0 || !slices.Equal(h.Peers, []string{"ab 1"}) {
		t.Errorf("host %+v, notes %v", h, run.Notes)
	}
	for i, j := range w.jobs {
		want := generator.Job{Client: generator.NameAB, Path: "/bin/ab", Requests: 500, Connections: 10}
		if i >= 4 {
			want.Client = generator.NameABKeep
		}
		if of[workload.HTTP](j) == nil || of[workload.HTTP](j).Ask != want || j.Suite != "watch" || j.Workload != "http" ||
			j.Engine != inTurn(i, 2, watchEngines...) || of[workload.Watch](j) != nil {
			t.Fatalf("round %d: %+v", i, j)
		}
	}
	w.jobs = nil
	run, err = Watch(t.Context(), WatchOptions{Workloads: []string{"http", "events"}, Timing: Timing{Pairs: 1}, Sources: []string{"wake"}}, w.Env)
	if err != nil || len(run.Cells) != 3 || run.Cells[2].Workload != "events" || of[workload.HTTP](w.jobs[0]).Ask.Requests != 100_000 || run.Host.DurationMs != 200 {
		t.Errorf("both: %+v, %v", run.Cells, err)
	}
	w.refuses = "io_uring"
	run, err = Watch(t.Context(), WatchOptions{Workloads: []string{"http"}, Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil || len(run.Skipped) != 1 || run.Skipped[0].Workload != "http" || run.Skipped[0].Engine != "io_uring" {
		t.Errorf("without a ring: skipped %+v, %v", run.Skipped, err)
	}
	w.findClient = func(context.Context, string) (path, version string, err error) { return "", "", generator.ErrMissing }
	run, err = Watch(t.Context(), WatchOptions{Workloads: []string{"http"}, Timing: fiveRounds}, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 2 || run.Skipped[1].Reason != generator.ErrMissing.Error() {
		t.Errorf("without ab: skipped %+v, %v", run.Skipped, err)
	}
}

func TestWatchPointsAreReplaced(t *testing.T) {
	w := newWatchWorld()
	opts := WatchOptions{
		Modes: []string{"level", "one-shot"}, Active: []int{7}, Idle: []int{0, 9}, Sources: []string{"socketpair", "wake"},
		Engines: []string{"io_uring"}, Timing: Timing{Pairs: 1, Duration: time.Millisecond},
	}
	if _, err := Watch(t.Context(), opts, w.Env); err != nil || len(w.jobs) != 5 {
		t.Fatalf("%d rounds, %v", len(w.jobs), err)
	}
	if got := *of[workload.Watch](w.jobs[3]); got != (workload.Watch{Source: "socketpair", Mode: watch.OneShot, Active: 7, Idle: 9}) {
		t.Errorf("last point %+v", got)
	}
	if got := (WatchOptions{Idle: []int{5}}).withDefaults().points("eventfd"); len(got) != 1 || got[0] != (workload.Watch{Mode: watch.Edge, Active: 100, Idle: 5}) {
		t.Errorf("only --idle: %+v", got)
	}
}

func TestWatchSkipsByName(t *testing.T) {
	w := newWatchWorld()
	w.refuses, w.limit = "io_uring", 1024
	run, err := Watch(t.Context(), WatchOptions{Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil || len(run.Cells) != 7 || len(run.Cells[0].Series) != 1 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	var b strings.Builder
	if err := run.WriteSkipped(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"skipped: watch events, engine io_uring: forbidden\n",
		"skipped: watch events, eventfds, edge, 100 active, with 10000 idle: needs 10264 descriptors, and a process may have only 1024 (ulimit -n)\n",
		"skipped: watch events, eventfds, edge, 1000 active: needs 2064 ",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	w.limit = 100
	if _, err := Watch(t.Context(), WatchOptions{Sources: []string{"socketpair"}}, w.Env); !errors.Is(err, ErrNothing) {
		t.Errorf("no descriptors: %v", err)
	}
	if _, err := Watch(t.Context(), WatchOptions{Engines: []string{"io_uring"}}, w.Env); !errors.Is(err, ErrNothing) {
		t.Errorf("no engine: %v", err)
	}
}

func TestWatchEndsWithItsContext(t *testing.T) {
	w := newWatchWorld()
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if len(w.jobs) == 14 {
			cancel()
		}
		return inner(ctx, j)
	}
	run, err := Watch(ctx, WatchOptions{Timing: fiveRounds}, w.Env)
	if !errors.Is(err, context.Canceled) || len(run.Cells) != 1 || !strings.Contains(err.Error(), "1 of 9 cells") {
		t.Errorf("%d cells, %v", len(run.Cells), err)
	}
}

func TestWatchNamesWhatFailed(t *testing.T) {
	w := newWatchWorld()
	inner := w.Workers.Round
	w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
		if j.Engine == "io_uring" && of[workload.Watch](j).Mode == watch.Level {
			return measure.Sample{}, errors.New("it broke")
		}
		return inner(ctx, j)
	}
	run, err := Watch(t.Context(), WatchOptions{Timing: fiveRounds}, w.Env)
	if len(run.Cells) != 7 || !errors.Is(err, ErrFailed) || err.Error() != "2 of 9 cells failed: events, eventfds, level, 100 active: engine io_uring: it broke" {
		t.Errorf("%d cells, %v", len(run.Cells), err)
	}
}

// TestWatchLeavesOutRoundsBelowTheFloor checks that a run continues, and does not fail, after a round that returned
// ErrFloor, in this process or in a worker.
func TestWatchLeavesOutRoundsBelowTheFloor(t *testing.T) {
	for _, drowned := range []error{workload.ErrFloor, &measure.WorkerError{Said: workload.ErrFloor.Error(), Err: errors.New("exit status 1")}} {
		w := newWatchWorld()
		inner := w.Workers.Round
		w.Workers.Round = func(ctx context.Context, j workload.Job) (measure.Sample, error) {
			if j.Engine == "io_uring" && of[workload.Watch](j).Mode == watch.OneShot {
				return measure.Sample{}, drowned
			}
			return inner(ctx, j)
		}
		run, err := Watch(t.Context(), WatchOptions{Timing: fiveRounds}, w.Env)
		if err != nil || len(run.Cells) != 8 || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "--duration") {
			t.Errorf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
		}
	}
}

func TestWatchValidate(t *testing.T) {
	for _, o := range []WatchOptions{
		{Engines: []string{"auto"}}, {Engines: []string{"epoll", "epoll"}}, {Sources: []string{"sun"}}, {Modes: []string{"bevel"}},
		{Workloads: []string{"sun"}}, {Workloads: []string{"http", "http"}}, {Requests: 99}, {Requests: maxRequests + 1}, {Requests: -1},
		{Connections: -1}, {Connections: maxAsking + 1}, {Active: []int{0}}, {Active: []int{maxWatched + 1}}, {Idle: []int{-1}}, {Timing: Timing{Pairs: -1}}, {Timing: Timing{Duration: -1}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if err := (WatchOptions{}).withDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
