// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"runtime"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/generator"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const (
	nameEcho = "echo"
	// smallMessage is the default length of a message in bytes.
	smallMessage = 128
	largeMessage = 1024
	// Of answers of at least largeAnswer bytes the generator does not check all.
	largeAnswer = 256 << 10
	// An answer of nameBulk is bulkOf datagrams of bulkSize bytes. It fits into a default receive
	// buffer.
	nameBulk = "udp-bulk"
	bulkOf   = 64
	bulkSize = 1200
)

// netWorkload is one kind of load. It has no state; the state of a run is in the netRun.
type netWorkload struct {
	// name is the workload's name in tables and result files.
	name string
	// all are the engines that can run the workload. own are the default engines; the first is the
	// baseline. The workload echo chooses engines for each cell.
	all, own []string
	// cells returns the workload's part of the grid, for options with defaults filled in.
	cells func(NetOptions) []netCell
	// set changes server and load for a cell. round, if not nil, runs one engine once without our
	// load generator.
	set   func(n *netRun, c netCell, s *echo.Setup, j *loadgen.Job)
	round func(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error)
	// bytes makes the rate in bytes the result.
	bytes bool
}

var (
	// socketEngines support net.Conn and net.PacketConn. streamEngines serve any kind of stream.
	socketEngines = []string{echo.NameStd, echo.NameConn, echo.NamePlain}
	streamEngines = append(slices.Clone(socketEngines), echo.NameEvent, echo.NameEpoll)
	usualEngines  = []string{echo.NameStd, echo.NameConn, echo.NameEvent}
	// batchEngines serve only datagrams.
	batchEngines = []string{echo.NameXNet, echo.NameBatch}
	bulkEngines  = []string{echo.NameStd, echo.NameXNet, echo.NameBatch, echo.NameEvent}
)

// netWorkloads are all workloads, in the order in which they are measured.
var netWorkloads = []netWorkload{
	{name: nameEcho, all: netEngines, cells: echoCells},
	{
		name: nameHandlers, all: socketEngines, own: socketEngines[:2], cells: handlersCells,
		set: func(n *netRun, c netCell, s *echo.Setup, j *loadgen.Job) {
			s.Work = n.work(c.handler)
			*j = n.job(c, handlerWindows*n.opts.Duration)
		},
	},
	{name: nameComputing, all: streamEngines, own: usualEngines, cells: computingCells, round: computingRound},
	{
		name: "pipeline", all: netEngines, own: usualEngines,
		cells: func(o NetOptions) []netCell {
			return o.grid(netCell{workload: "pipeline", more: report.Params{"messages": 16}}, []int{smallMessage}, 1, 50)
		},
		set: func(_ *netRun, c netCell, _ *echo.Setup, j *loadgen.Job) { j.Pipeline = c.more["messages"].(int) },
	},
	{
		name: "stream", all: streamEngines, own: usualEngines, bytes: true,
		cells: func(o NetOptions) (out []netCell) {
			for _, direction := range []string{"in", "out"} {
				c := netCell{workload: "stream", more: report.Params{"direction": direction}}
				out = append(out, o.grid(c, []int{1 << 20}, 1, 4, 32)...)
			}
			return out
		},
		set: func(_ *netRun, c netCell, s *echo.Setup, j *loadgen.Job) {
			s.Take, s.Give, j.Size, j.Reply = c.size, 1, c.size, 1
			if c.more["direction"] == "out" {
				s.Take, s.Give, j.Size, j.Reply, j.Discard = 1, c.size, 1, c.size, c.size >= largeAnswer
			}
		},
	},
	{
		name: "churn", all: netEngines, own: usualEngines, cells: messages("churn", 1, 50),
		set: func(_ *netRun, _ netCell, _ *echo.Setup, j *loadgen.Job) { j.Churn = true },
	},
	{
		name: "dial", all: socketEngines, own: socketEngines[:2], cells: messages("dial", 1, 16),
		set: func(_ *netRun, c netCell, s *echo.Setup, _ *loadgen.Job) { s.Dial = c.size },
	},
	{
		name: "unix", all: streamEngines, own: usualEngines, cells: messages("unix", 1, 100),
		set: func(_ *netRun, _ netCell, s *echo.Setup, _ *loadgen.Job) { s.Network = "unix" },
	},
	{
		name: "udp", all: slices.Concat(streamEngines, batchEngines), own: slices.Concat(usualEngines, batchEngines), cells: messages("udp", 1, 16, 100),
		set: func(_ *netRun, _ netCell, s *echo.Setup, _ *loadgen.Job) { s.Network = "udp" },
	},
	{
		name: nameBulk, all: append(slices.Clone(bulkEngines), echo.NameEpoll), own: bulkEngines, bytes: true,
		cells: func(o NetOptions) []netCell {
			return o.grid(netCell{workload: nameBulk, size: bulkOf * bulkSize}, nil, 1, 16)
		},
		set: func(_ *netRun, _ netCell, s *echo.Setup, j *loadgen.Job) {
			s.Network, s.Give, s.Burst = "udp", bulkSize, bulkOf
			j.Size, j.Reply, j.Burst = smallMessage, bulkSize, bulkOf
		},
	},
	{
		name: "tls", all: streamEngines, own: usualEngines, cells: tlsCells,
		set: func(_ *netRun, _ netCell, s *echo.Setup, j *loadgen.Job) { s.TLS, j.TLS = true, true },
	},
	{name: nameHTTP, all: socketEngines, own: socketEngines[:2], cells: httpCells(nameHTTP), set: setHTTP, round: httpRound},
	{name: nameFastHTTP, all: socketEngines, own: socketEngines[:2], cells: httpCells(nameFastHTTP), set: setHTTP, round: httpRound},
	{
		name: nameIdle, all: append(slices.Clone(streamEngines[:4]), liburing.Name), own: usualEngines,
		cells: func(o NetOptions) []netCell { return o.grid(netCell{workload: nameIdle}, nil, 1000, 10_000) }, round: idleRound,
	},
}

// grid returns a copy of the given cell for each message length and each number of connections.
// Axes that the user gave replace these. Without sizes the length is that of the given cell.
func (o NetOptions) grid(like netCell, sizes []int, connections ...int) (out []netCell) {
	if sizes == nil {
		sizes = []int{like.size}
	} else {
		sizes = orOwn(o.Sizes, sizes)
	}
	for _, procs := range orOwn(o.Procs, []int{like.procs}) {
		for _, size := range sizes {
			for _, n := range orOwn(o.Connections, connections) {
				c := like
				c.procs, c.size, c.connections = procs, size, n
				out = append(out, c)
			}
		}
	}
	return out
}

// messages returns the cells of a workload that sends small messages.
func messages(workload string, connections ...int) func(NetOptions) []netCell {
	return func(o NetOptions) []netCell {
		return o.grid(netCell{workload: workload}, []int{smallMessage}, connections...)
	}
}

// tlsCells returns messages of several lengths, because encryption costs by the byte.
func tlsCells(o NetOptions) []netCell {
	if o.Brief {
		return o.grid(netCell{workload: "tls"}, []int{smallMessage, 16 << 10}, 100)
	}
	return o.grid(netCell{workload: "tls"}, []int{smallMessage, 4 << 10, 16 << 10}, 1, 100)
}

// run runs one engine once.
func (w netWorkload) run(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	if w.round != nil {
		return w.round(ctx, n, c, engine)
	}
	setup, job := w.parts(n, c, engine)
	s, err := n.env.Servers.Round(ctx, setup, n.programs[engine], job)
	if err != nil {
		return report.Sample{}, err
	}
	out := n.echoSample(s)
	if w.bytes {
		out.Metrics[measure.MBPerS] = float64(c.size) * out.Metrics[measure.OpsPerS] / 1e6
	}
	return out, nil
}

// parts returns the server and the load of a cell with our load generator.
func (w netWorkload) parts(n *netRun, c netCell, engine string) (echo.Setup, loadgen.Job) {
	setup, job := n.setup(c, engine), n.job(c, n.opts.Duration)
	if w.set != nil {
		w.set(n, c, &setup, &job)
	}
	return setup, job
}

// smallBuffer is the least length of a connection's buffer, largeBuffer the greatest.
const smallBuffer, largeBuffer = 4 << 10, 64 << 10

// setup returns the server of a cell.
func (n *netRun) setup(c netCell, engine string) echo.Setup {
	s := echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin}
	if c.size > smallBuffer && c.size <= largeBuffer { // as a program would that expects such messages
		s.Buffer = c.size
	}
	return s
}

// echoCells returns the grid of echoes. By default larger messages are sent over three numbers of
// connections: one, many, and very many.
func echoCells(o NetOptions) (out []netCell) {
	if o.Brief {
		out = o.grid(netCell{workload: nameEcho}, []int{smallMessage}, 1, 100)
		return append(out, o.grid(netCell{workload: nameEcho}, []int{4 << 10, 16 << 10}, 100)...)
	}
	for _, procs := range echoProcs(o) {
		for _, size := range echoSizes(o, procs) {
			for _, n := range orOwn(o.Connections, echoConnections(o, size, procs)) {
				out = append(out, netCell{workload: nameEcho, connections: n, size: size, procs: procs})
			}
		}
	}
	return out
}

func echoProcs(o NetOptions) []int {
	switch {
	case len(o.Procs) > 0:
		return o.Procs
	case o.Full:
		return []int{0, 1}
	}
	return []int{0}
}

func echoSizes(o NetOptions, procs int) []int {
	if procs == 1 {
		return orOwn(o.Sizes, []int{smallMessage})
	}
	return orOwn(o.Sizes, []int{smallMessage, largeMessage})
}

func echoConnections(o NetOptions, size, procs int) []int {
	switch {
	case procs == 1:
		return []int{10, 100, 1000}
	case o.Full:
		return []int{1, 2, 10, 50, 100, 500, 1000, 10_000}
	case size == largeMessage:
		return []int{1, 100, 1000}
	}
	return []int{1, 10, 50, 100, 500, 1000}
}

// job returns a round of a cell with our load generator.
func (n *netRun) job(c netCell, window time.Duration) loadgen.Job {
	return loadgen.Job{
		Connections: c.connections, Size: c.size, Warm: netWarm(c, window), Measure: window, Count: countFor(window),
	}
}

// netWarm returns a warm-up that lets every connection send some messages.
func netWarm(c netCell, window time.Duration) time.Duration {
	return min(warmFor(window), 60*time.Millisecond+time.Duration(c.connections)*20*time.Microsecond)
}

// countFor returns how long system calls are counted after a window.
func countFor(window time.Duration) time.Duration {
	return min(max(window/8, 2*time.Millisecond), 40*time.Millisecond)
}

const nameHandlers = "handlers"

// handlersCells returns echoes whose handler computes or sleeps.
func handlersCells(o NetOptions) (out []netCell) {
	for _, h := range []handlerWork{
		{compute: 5 * time.Microsecond}, {compute: 50 * time.Microsecond}, {compute: 500 * time.Microsecond}, {sleep: 500 * time.Microsecond},
	} {
		out = append(out, o.grid(netCell{workload: nameHandlers, handler: h}, []int{smallMessage}, 20)...)
	}
	return out
}

// handlerWindows makes the windows longer. The results depend on the scheduler's time slices of 10
// ms, and a short window has too few of them.
const handlerWindows = 2

// work converts a computing time to steps. The number of steps per microsecond is measured once per
// run, so that all engines have the same work.
func (n *netRun) work(h handlerWork) echo.Work {
	if h.compute > 0 && n.spins == 0 {
		n.spins = n.env.spins()
	}
	return echo.Work{Spins: int(n.spins * float64(h.compute) / float64(time.Microsecond)), Sleep: h.sleep}
}

const nameComputing = "computing"

// computingCells returns echoes while goroutines of the server compute: first one of them, then one
// per processor of the server.
func computingCells(o NetOptions) (out []netCell) {
	for _, c := range o.grid(netCell{workload: nameComputing}, []int{smallMessage}, 20) {
		for _, computing := range slices.Compact([]int{1, o.serverProcs(c)}) {
			c.more = report.Params{paramComputing: computing}
			out = append(out, c)
		}
	}
	return out
}

// serverProcs returns the GOMAXPROCS of a cell's server.
func (o NetOptions) serverProcs(c netCell) int {
	switch {
	case c.procs > 0:
		return c.procs
	case o.Pin:
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// computingRound reports the rate of computation, and no CPU time, because most of it is that of the
// computation. The windows are as long as those of the suite "file" for the same reason.
func computingRound(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	setup := n.setup(c, engine)
	setup.Computing = c.more[paramComputing].(int)
	s, err := n.env.Servers.Round(ctx, setup, n.programs[engine], n.job(c, burnerWindows*n.opts.Duration))
	if err != nil {
		return report.Sample{}, err
	}
	out := n.echoSample(s)
	delete(out.Metrics, measure.CPUUsPerOp)
	out.Metrics[measure.UnitsPerS] = float64(s.Units) / s.At.Seconds()
	return out, nil
}

const (
	nameHTTP = "http"
	// nameFastHTTP is the same with a server of fasthttp, which only builds with -tags peers have.
	nameFastHTTP = "fasthttp"
	// ownClient is our load generator.
	ownClient = "own"
)

// netClients are the load generators of the workloads http and fasthttp.
var netClients = []string{ownClient, generator.NameAB, generator.NameABKeep, generator.NameWrk}

// httpCells returns cells of a web server on different listeners, for each client: by default our own,
// and with Full all. ab gets ten connections, because its own overhead grows too much with more.
func httpCells(workload string) func(NetOptions) []netCell {
	return func(o NetOptions) (out []netCell) {
		like := netCell{workload: workload, client: ownClient}
		if o.Brief {
			out = o.grid(like, []int{smallMessage, 64 << 10}, 100)
			like.more = report.Params{paramBody: 64 << 10}
			return append(out, o.grid(like, []int{smallMessage}, 100)...)
		}
		clients := netClients[:1]
		if o.Full {
			clients = netClients
		}
		for _, client := range orThese(o.Clients, clients...) {
			connections := []int{10, 500}
			if client == generator.NameAB || client == generator.NameABKeep {
				connections = []int{10}
			}
			like.client = client
			out = append(out, o.grid(like, []int{smallMessage, 64 << 10}, connections...)...)
		}
		for _, body := range orOwn(o.Bodies, []int{64 << 10}) {
			if len(o.Clients) == 0 || slices.Contains(o.Clients, ownClient) {
				like.client, like.more = ownClient, report.Params{paramBody: body}
				out = append(out, o.grid(like, []int{smallMessage}, 10, 500)...)
			}
		}
		if len(o.Bodies) > 0 {
			out = slices.DeleteFunc(out, func(c netCell) bool { return c.more[paramBody] == nil })
		}
		return out
	}
}

func setHTTP(_ *netRun, c netCell, s *echo.Setup, j *loadgen.Job) {
	s.HTTP, s.Fast, j.HTTP = c.size, c.workload == nameFastHTTP, true
	if body, ok := c.more[paramBody].(int); ok {
		j.Body = body
	}
}

// paramBody is the length of the body of a request in bytes.
const paramBody = "body"

func httpRound(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	setup, job := n.setup(c, engine), n.job(c, n.opts.Duration)
	setHTTP(n, c, &setup, &job)
	if c.client == ownClient {
		s, err := n.env.Servers.Round(ctx, setup, n.programs[engine], job)
		return n.echoSample(s), err
	}
	s, err := n.env.Servers.Client(ctx, setup, generator.Job{
		Client: c.client, Path: n.clients[c.client], Connections: c.connections, Measure: n.opts.Duration,
	})
	return n.echoSample(s), err
}

const nameIdle = "idle"

const (
	// manyIdle is the number of connections from which only memory matters, so that the window is
	// short.
	manyIdle = 5000
	// idleBuffer is the length of each connection's buffer in servers that have one. It is small so
	// that it does not hide the differences between the engines.
	idleBuffer = 128
	idleSettle = 200 * time.Millisecond
)

// idleRound keeps idle connections open.
func idleRound(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	job := echo.IdleJob{Connections: c.connections, Window: n.opts.IdleFor, Settle: min(idleSettle, n.opts.IdleFor)}
	if c.connections >= manyIdle {
		job.Window /= 10
	}
	setup := n.setup(c, engine)
	setup.Buffer = idleBuffer
	s, err := n.env.Servers.Idle(ctx, setup, n.programs[engine], job)
	if err != nil {
		return report.Sample{}, err
	}
	m := map[string]float64{
		report.IdleCPU:    float64(s.CPU.Microseconds()) / s.Elapsed.Seconds(),
		report.WakesPerS:  float64(s.Sleeps) / s.Elapsed.Seconds(),
		report.RSSPerConn: s.Resident,
	}
	if s.Go {
		m[report.HeapPerConn] = s.Live
	}
	return report.Sample{Iterations: int64(c.connections), Metrics: m}, nil
}
