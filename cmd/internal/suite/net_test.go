// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// netWorld is a NetEnv in which everything works, rounds take no time, and jobs are recorded. It is
// its own peer.
type netWorld struct {
	NetEnv
	jobs    []loadgen.Job
	engines []string
	trials  int
	refuses string // the engine that fails
	removed int
}

func newNetWorld() *netWorld {
	w := &netWorld{}
	w.NetEnv = NetEnv{
		Round:       w.round,
		Descriptors: func() int { return 0 },
		BuildPeer:   func(context.Context) (NetPeer, error) { return w, nil },
		Progress:    quiet{},
	}
	return w
}

func (w *netWorld) round(ctx context.Context, engine string, peer NetPeer, j loadgen.Job) (echo.Sample, error) {
	if ctx.Err() != nil {
		return echo.Sample{}, ctx.Err()
	}
	if engine == w.refuses {
		return echo.Sample{}, errors.New("it broke")
	}
	if (engine == liburing.Name) && peer == nil {
		return echo.Sample{}, errors.New("no peer")
	}
	if j.Warm == 0 {
		w.trials++
	} else {
		w.jobs, w.engines = append(w.jobs, j), append(w.engines, engine)
	}
	s := echo.Sample{Go: true, Backend: "b"}
	s.Result = loadgen.Result{Ops: 1000, Elapsed: time.Second, CPU: 4 * time.Millisecond, P50: 1, P99: 2, Max: 3}
	s.Enters = 100
	if engine == echo.NameStd {
		s.Ops, s.Enters = 500, -1
	}
	return s, nil
}

func (w *netWorld) Command() []string { return []string{"peer"} }
func (w *netWorld) Version() string   { return "liburing 9.9, tcc" }
func (w *netWorld) Remove() error     { w.removed++; return nil }

func TestNetMeasuresTheDefaultGrid(t *testing.T) {
	w := newNetWorld()
	run, err := Net(t.Context(), NetOptions{}, w.NetEnv)
	if err != nil || len(run.Skipped) != 0 || len(run.Cells) != 9 {
		t.Fatalf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	if h := run.Host; h.Pairs != 5 || h.DurationMs != 200 || h.Backend != "b" || !slices.Equal(h.Peers, []string{"liburing 9.9, tcc"}) {
		t.Errorf("host %+v", h)
	}
	if len(w.jobs) != 9*6*5 || w.trials != 6 || w.removed != 1 {
		t.Fatalf("%d rounds, %d trials, removed %d times", len(w.jobs), w.trials, w.removed)
	}
	for i, j := range w.jobs {
		if w.engines[i] != netEngines[i%6] || j.Measure != 200*time.Millisecond || j.Size != []int{128, 1024}[i/180] {
			t.Fatalf("round %d: %s %+v", i, w.engines[i], j)
		}
	}
	m := run.Cells[0].Series
	if _, ok := m[0].Samples[0].Metrics[report.EntersPerOp]; ok {
		t.Error("std counts enters")
	}
	if got := m[3].Samples[0].Metrics; got[report.EntersPerOp] != 0.1 || got["cpu_us_per_op"] != 4 || got["ops_per_s"] != 1000 {
		t.Errorf("metrics %v", got)
	}
	against := map[string]bool{}
	for _, r := range run.Document().Ratios {
		if r.Engine == echo.NameEvent {
			against[r.Against] = true
		}
	}
	if !against[echo.NameStd] || !against[liburing.Name] || !against[echo.NameNetpoll] {
		t.Errorf("event is compared to %v", against)
	}
}

func TestNetSkipsWhatDoesNotWork(t *testing.T) {
	w := newNetWorld()
	w.refuses = echo.NameSQPoll
	w.BuildPeer = func(context.Context) (NetPeer, error) { return nil, liburing.ErrNoCompiler }
	w.Descriptors = func() int { return 500 }
	run, err := Net(t.Context(), NetOptions{Sizes: []int{128}, Pairs: 1}, w.NetEnv)
	if err != nil || len(run.Cells) != 4 || len(run.Cells[0].Series) != 4 || w.removed != 0 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	said := ""
	for _, s := range run.Skipped {
		said += s.Engine + ": " + s.Reason + "\n"
	}
	for _, want := range []string{"liburing: there is no C compiler", "sqpoll: it broke", "ulimit -n"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
	w.Descriptors = func() int { return 10 }
	if _, err := Net(t.Context(), NetOptions{}, w.NetEnv); !errors.Is(err, ErrNothing) {
		t.Errorf("nothing is possible: %v", err)
	}
}

func TestNetEndsWithItsContext(t *testing.T) {
	w := newNetWorld()
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Round
	w.Round = func(ctx context.Context, e string, p NetPeer, j loadgen.Job) (echo.Sample, error) {
		if len(w.jobs) == 40 {
			cancel()
		}
		return inner(ctx, e, p, j)
	}
	run, err := Net(ctx, NetOptions{}, w.NetEnv)
	if !errors.Is(err, context.Canceled) || len(run.Cells) != 1 || w.removed != 1 {
		t.Errorf("%d cells, removed %d times, %v", len(run.Cells), w.removed, err)
	}
}

// TestDefaultNetRunFitsItsTime allows 80 ms of each round for its processes.
func TestDefaultNetRunFitsItsTime(t *testing.T) {
	o := NetOptions{}.withDefaults()
	rounds := time.Duration(len(netEngines) * o.Pairs * len(o.cells()))
	if total := rounds * (warmFor(o.Duration) + o.Duration + 80*time.Millisecond); total > 100*time.Second {
		t.Errorf("the default run takes %v", total)
	}
	if n := len(NetOptions{Full: true}.cells()); n != 14 {
		t.Errorf("%d cells in full", n)
	}
}

func TestNetValidate(t *testing.T) {
	for _, o := range []NetOptions{
		{Connections: []int{0}}, {Connections: []int{30_000}}, {Sizes: []int{0}}, {Sizes: []int{2 << 20}},
		{Engines: []string{"abacus"}}, {Engines: []string{"std", "std"}}, {Pairs: -1}, {Duration: -1},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	if err := (NetOptions{}).withDefaults().Validate(); err != nil {
		t.Error(err)
	}
}
