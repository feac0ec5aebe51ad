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
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/clone"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

// netWorld is a Env in which everything works, rounds take no time, and requests are
// recorded. It is its own peer.
type netWorld struct {
	Env
	jobs    []loadgen.Job
	setups  []echo.Setup
	clients []Driver
	idle    []echo.IdleJob
	trials  int
	refuses string // the engine that fails
	removed int
	asked   int // for the number of spins
}

func newNetWorld() *netWorld {
	w := &netWorld{}
	w.Env = Env{
		Servers: Servers{Round: w.round, Client: w.client, Idle: w.hold},
		machine: machine{
			findClient: func(_ context.Context, client string) (path, version string, err error) {
				return "/bin/" + client, "1 of " + client, nil
			},
			spins:       func() float64 { w.asked++; return 100 },
			fastHTTP:    true,
			descriptors: func() int { return 0 },
			ports:       func() int { return 0 },
			buildServer: func(context.Context, string, string) (NetPeer, error) { return w, nil },
		},
	}
	return w
}

func (w *netWorld) round(ctx context.Context, setup echo.Setup, peer NetPeer, j loadgen.Job) (echo.Sample, error) {
	if ctx.Err() != nil {
		return echo.Sample{}, ctx.Err()
	}
	if setup.Engine == w.refuses {
		return echo.Sample{}, errors.New("it broke")
	}
	if (setup.Engine == liburing.Name) && peer == nil {
		return echo.Sample{}, errors.New("no peer")
	}
	if j.Warm == 0 {
		w.trials++
	} else {
		w.jobs, w.setups = append(w.jobs, j), append(w.setups, setup)
	}
	s := echo.Sample{Go: true, Backend: "b"}
	s.Result = loadgen.Result{
		Ops: 1000, Elapsed: time.Second, CPU: 4 * time.Millisecond, P50: 1, P99: 2, Max: 3, Counted: 100, Syscalls: 250,
	}
	s.Enters, s.Units, s.At = 100, 6000, 2*time.Second
	if setup.Engine == echo.NameStd {
		s.Ops, s.Enters = 500, -1
		s.Counted, s.Uncounted = 0, "only root counts"
	}
	return s, nil
}

func (w *netWorld) client(_ context.Context, setup echo.Setup, d Driver) (echo.Sample, error) {
	w.clients, w.setups = append(w.clients, d), append(w.setups, setup)
	s := echo.Sample{Backend: "b"}
	s.Result = loadgen.Result{Ops: 100, Elapsed: time.Second, CPU: time.Second, P50: 1, P99: 2, Max: 3}
	s.Enters = -1
	return s, nil
}

func (w *netWorld) hold(_ context.Context, setup echo.Setup, _ NetPeer, j echo.IdleJob) (echo.IdleSample, error) {
	w.idle, w.setups = append(w.idle, j), append(w.setups, setup)
	return echo.IdleSample{CPU: time.Millisecond, Elapsed: 10 * time.Second, Sleeps: 5, Live: 2000, Resident: 3000, Go: setup.Engine != liburing.Name}, nil
}

func (w *netWorld) Command() []string { return []string{"peer"} }
func (w *netWorld) Version() string   { return "liburing 9.9, tcc" }
func (w *netWorld) Remove() error     { w.removed++; return nil }

func TestNetMeasuresTheDefaultGrid(t *testing.T) {
	w := newNetWorld()
	run, err := Net(t.Context(), NetOptions{Timing: fiveRounds}, w.Env)
	if err != nil || len(run.Skipped) != 0 || len(run.Cells) != 9 {
		t.Fatalf("%d cells, skipped %v, %v", len(run.Cells), run.Skipped, err)
	}
	if h := run.Host; h.Pairs != 5 || h.DurationMs != 200 || h.Backend != "b" || !slices.Equal(h.Peers, []string{"liburing 9.9, tcc"}) {
		t.Errorf("host %+v", h)
	}
	if len(w.jobs) != 6*5*5+3*4*5 || w.trials != 5 || w.removed != 1 {
		t.Fatalf("%d rounds, %d trials, removed %d times", len(w.jobs), w.trials, w.removed)
	}
	brief := slices.DeleteFunc(slices.Clone(netEngines), func(e string) bool {
		return e == echo.NameEpoll || e == echo.NameBlocking || clone.Is(e)
	})
	for i, j := range w.jobs[:6*5*5] {
		if w.setups[i] != (echo.Setup{Engine: inTurn(i, 5, brief...)}) || j.Measure != 200*time.Millisecond || j.Size != 128 || j.Count != 25*time.Millisecond {
			t.Fatalf("round %d: %+v %+v", i, w.setups[i], j)
		}
	}
	m := run.Cells[0].Series
	for _, metric := range []string{report.EntersPerOp, report.SyscallsPerOp} {
		if _, ok := m[0].Samples[0].Metrics[metric]; ok {
			t.Errorf("std has %s", metric)
		}
	}
	if !slices.Contains(run.Notes, "no system calls per operation: only root counts") {
		t.Errorf("notes %q", run.Notes)
	}
	if got := m[3].Samples[0].Metrics; got[report.EntersPerOp] != 0.1 || got[report.SyscallsPerOp] != 2.5 || got["cpu_us_per_op"] != 4 || got["ops_per_s"] != 1000 {
		t.Errorf("metrics %v", got)
	}
	against := map[string]bool{}
	for _, r := range run.Document().Ratios {
		if r.Engine == echo.NameEvent {
			against[r.Against] = true
		}
	}
	if !against[echo.NameStd] || !against[liburing.Name] {
		t.Errorf("event is compared with %v", against)
	}
}

func TestNetMeasuresAllWorkloads(t *testing.T) {
	w := newNetWorld()
	run, err := Net(t.Context(), NetOptions{Full: true, Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil {
		t.Fatal(err)
	}
	cells := map[string]int{}
	for _, c := range run.Cells {
		cells[c.Workload]++
		if len(c.Series) < 2 || c.Series[0].Engine != echo.NameStd || len(c.Series[0].Samples) != 1 {
			t.Errorf("%v: %+v", c.Params, c.Series)
		}
	}
	if cells[nameEcho] != 8+8+3 || cells[nameHandlers] != 4 || cells["dial"] != 2 || cells[nameHTTP] != 14 || cells[nameIdle] != 2 {
		t.Errorf("cells %v", cells)
	}
	if len(run.Skipped) != len(clone.Names) || run.Skipped[0].Engine != "gnet" || !strings.Contains(run.Skipped[0].Reason, "--gnet DIR") {
		t.Errorf("skipped %v", run.Skipped)
	}
	if peers := run.Host.Peers; !slices.Contains(peers, "1 of ab-k") || !slices.Contains(peers, "1 of wrk") {
		t.Errorf("peers %q", peers)
	}
	var ones, works, web int
	for _, s := range w.setups {
		if s.Procs == 1 {
			ones++
		}
		if s.Work == (echo.Work{Spins: 50_000}) || s.Work == (echo.Work{Sleep: 500 * time.Microsecond}) {
			works++
		}
		if s.HTTP == 128 && !s.Fast {
			web++
		}
	}
	if ones != 3*3 || works != 4 || web != 16 || w.asked != 1 {
		t.Errorf("%d servers with one P, %d handlers of 500 µs, %d web servers, spins asked for %d times", ones, works, web, w.asked)
	}
	if len(w.clients) != 2*2*2*4 || w.clients[0] != (generator.Job{Client: "ab", Path: "/bin/ab", Connections: 10, Measure: 200 * time.Millisecond}) {
		t.Errorf("clients %+v", w.clients)
	}
	if len(w.idle) != 6 || w.idle[0].Window != 10*time.Second || w.idle[5].Window != time.Second || w.idle[5].Connections != 10_000 {
		t.Errorf("idle %+v", w.idle)
	}
	if m := run.Cells[len(run.Cells)-1].Series[1].Samples[0].Metrics; m[report.IdleCPU] != 100 || m[report.WakesPerS] != 0.5 ||
		m[report.HeapPerConn] != 2000 || m[report.RSSPerConn] != 3000 {
		t.Errorf("idle metrics %v", m)
	}
}

func TestNetDatagrams(t *testing.T) {
	w := newNetWorld()
	inner := w.Servers.Round
	w.Servers.Round = func(ctx context.Context, s echo.Setup, p NetPeer, j loadgen.Job) (echo.Sample, error) {
		if (j.Warm > 0 || slices.Contains(batchEngines, s.Engine)) && s.Network != "udp" {
			t.Errorf("%+v", s)
		}
		return inner(ctx, s, p, j)
	}
	o := NetOptions{Workloads: []string{"udp", nameBulk}, Timing: Timing{Pairs: 1}}
	run, err := Net(t.Context(), o, w.Env)
	if err != nil || len(run.Cells) != 3+2 || len(w.jobs) != 3*5+2*4 || w.trials != 5 {
		t.Fatalf("%d cells, %d rounds, %d trials, %v", len(run.Cells), len(w.jobs), w.trials, err)
	}
	bulk := run.Cells[3]
	if s := bulk.Series[3].Samples[0]; bulk.Params["size"] != 76_800 || s.Metrics[measure.MBPerS] != 76.8 {
		t.Errorf("%+v %+v", bulk.Params, s)
	}
	if s, j := w.setups[15], w.jobs[15]; s.Burst != 64 || s.Give != 1200 || j.Burst != 64 || j.Reply != 1200 || j.Size != 128 || j.Connections != 1 {
		t.Errorf("%+v %+v", s, j)
	}
	o.Connections, o.Sizes, o.Engines = []int{3}, []int{50}, []string{echo.NameStd, echo.NameBatch}
	w.jobs = nil
	if _, err := Net(t.Context(), o, w.Env); err != nil || len(w.jobs) != 4 || w.jobs[0].Size != 50 || w.jobs[3].Size != 128 || w.jobs[3].Connections != 3 {
		t.Errorf("%+v, %v", w.jobs, err)
	}
}

func TestNetComputing(t *testing.T) {
	w := newNetWorld()
	o := NetOptions{Workloads: []string{nameComputing}, Connections: []int{3, 5}, Sizes: []int{7}, Procs: []int{1, 4}, Timing: Timing{Pairs: 1}}
	run, err := Net(t.Context(), o, w.Env)
	if err != nil || len(run.Cells) != 2+2*2 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	for i, c := range run.Cells {
		s, j := w.setups[i*len(usualEngines)], w.jobs[i*len(usualEngines)]
		if s.Procs != c.Params["gomaxprocs"] || s.Computing != c.Params[paramComputing] || s.Computing != 1 && s.Computing != s.Procs ||
			j.Connections != c.Params["connections"] || j.Size != 7 || j.Measure != burnerWindows*200*time.Millisecond {
			t.Errorf("%v: %+v, %+v", c.Params, s, j)
		}
		m := c.Series[1].Samples[0].Metrics
		if _, known := m[measure.CPUUsPerOp]; known || m[measure.UnitsPerS] != 3000 || m[measure.OpsPerS] != 1000 {
			t.Errorf("metrics %v", m)
		}
	}
	if cells := (NetOptions{Workloads: []string{nameComputing}, Pin: true}).cells(); len(cells) != 1 || cells[0].connections != 20 || cells[0].size != smallMessage {
		t.Errorf("with one processor for the server: %+v", cells)
	}
}

func TestNetDial(t *testing.T) {
	w := newNetWorld()
	run, err := Net(t.Context(), NetOptions{Workloads: []string{"dial"}, Sizes: []int{50}, Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil || len(run.Cells) != 2 || len(w.jobs) != 2*2 {
		t.Fatalf("%d cells, %d rounds, %v", len(run.Cells), len(w.jobs), err)
	}
	for i, s := range w.setups {
		if want := (echo.Setup{Engine: socketEngines[i%2], Dial: 50}); s != want || w.jobs[i].Size != 50 || w.jobs[i].Connections != []int{1, 16}[i/2] {
			t.Errorf("%+v, %+v", s, w.jobs[i])
		}
	}
	if (NetOptions{Workloads: []string{"dial"}, Engines: []string{echo.NameEvent}}).Validate() == nil {
		t.Error("an engine without Dial is accepted")
	}
}

func TestNetFastHTTP(t *testing.T) {
	w := newNetWorld()
	o := NetOptions{Workloads: []string{nameFastHTTP}, Connections: []int{3}, Timing: Timing{Pairs: 1}}
	run, err := Net(t.Context(), o, w.Env)
	if err != nil || len(run.Cells) != 3 || len(run.Skipped) != 0 || len(w.jobs) != 2*3 {
		t.Fatalf("%d cells, skipped %v, %d jobs, %v", len(run.Cells), run.Skipped, len(w.jobs), err)
	}
	if s := w.setups[0]; s != (echo.Setup{Engine: echo.NameStd, Fast: true, HTTP: smallMessage}) || !w.jobs[0].HTTP || w.jobs[0].Connections != 3 {
		t.Errorf("%+v, %+v", s, w.jobs[0])
	}
	w.fastHTTP = false
	run, err = Net(t.Context(), o, w.Env)
	if !errors.Is(err, ErrNothing) || len(run.Skipped) != 1 || !strings.Contains(run.Skipped[0].Reason, "-tags peers") {
		t.Errorf("without fasthttp: skipped %v, %v", run.Skipped, err)
	}
}

func TestNetLeavesOutWhatIsNotThere(t *testing.T) {
	w := newNetWorld()
	w.findClient = func(_ context.Context, client string) (path, version string, err error) {
		return "", "", errors.New(client + " is not installed")
	}
	w.ports = func() int { return 900 }
	o := NetOptions{Workloads: []string{nameHTTP}, Clients: []string{"own", "ab", "wrk"}, Engines: []string{echo.NamePlain}, Timing: Timing{Pairs: 1}}
	run, err := Net(t.Context(), o, w.Env)
	if err != nil || len(run.Cells) != 3 || len(run.Cells[0].Series) != 1 || w.trials != 1 {
		t.Fatalf("%d cells, %d trials, %v", len(run.Cells), w.trials, err)
	}
	said := ""
	for _, s := range run.Skipped {
		said += s.String() + "\n"
	}
	for _, want := range []string{"ab: ab is not installed", "wrk: wrk is not installed", "500 connections, 128 B, own load generator: the system has only 900 ports"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
}

func TestNetSkipsWhatDoesNotWork(t *testing.T) {
	w := newNetWorld()
	w.refuses = echo.NamePlain
	w.buildServer = func(context.Context, string, string) (NetPeer, error) { return nil, liburing.ErrNoCompiler }
	w.descriptors = func() int { return 500 }
	run, err := Net(t.Context(), NetOptions{Sizes: []int{128}, Timing: Timing{Pairs: 1}}, w.Env)
	if err != nil || len(run.Cells) != 4 || len(run.Cells[0].Series) != 3 || w.removed != 0 {
		t.Fatalf("%d cells, %v", len(run.Cells), err)
	}
	said := ""
	for _, s := range run.Skipped {
		said += s.Engine + ": " + s.Reason + "\n"
	}
	for _, want := range []string{"liburing: there is no C compiler", "plain: it broke", "ulimit -Hn 564"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in\n%s", want, said)
		}
	}
	w.descriptors = func() int { return 10 }
	if _, err := Net(t.Context(), NetOptions{Timing: fiveRounds}, w.Env); !errors.Is(err, ErrNothing) {
		t.Errorf("no engine can run: %v", err)
	}
}

func TestNetEndsWithItsContext(t *testing.T) {
	w := newNetWorld()
	ctx, cancel := context.WithCancel(t.Context())
	inner := w.Servers.Round
	w.Servers.Round = func(ctx context.Context, e echo.Setup, p NetPeer, j loadgen.Job) (echo.Sample, error) {
		if len(w.jobs) == 30 {
			cancel()
		}
		return inner(ctx, e, p, j)
	}
	run, err := Net(ctx, NetOptions{Timing: fiveRounds}, w.Env)
	if !errors.Is(err, context.Canceled) || len(run.Cells) != 1 || w.removed != 1 {
		t.Errorf("%d cells, removed %d times, %v", len(run.Cells), w.removed, err)
	}
}

func TestNetValidate(t *testing.T) {
	for _, o := range []NetOptions{
		{Connections: []int{0}}, {Connections: []int{30_000}}, {Sizes: []int{0}}, {Sizes: []int{2 << 20}},
		{Engines: []string{"abacus"}}, {Engines: []string{"std", "std"}}, {Timing: Timing{Pairs: -1}}, {Timing: Timing{Duration: -1}},
		{Workloads: []string{"sums"}}, {Workloads: []string{"echo", "echo"}}, {Clients: []string{"curl"}}, {Procs: []int{-1}}, {IdleFor: -1},
		{Workloads: []string{"http"}, Engines: []string{"gnet"}},
		{Workloads: []string{"pipeline"}, Sizes: []int{1<<16 + 1}}, {Workloads: []string{"udp"}, Sizes: []int{65_508}},
	} {
		if o.Validate() == nil {
			t.Errorf("%+v accepted", o)
		}
	}
	for _, o := range []NetOptions{
		{}, {Full: true}, {Workloads: []string{"pipeline"}, Sizes: []int{1 << 16}}, {Workloads: []string{"udp"}, Sizes: []int{65_507}},
	} {
		if err := o.withDefaults().Validate(); err != nil {
			t.Error(err)
		}
	}
}
