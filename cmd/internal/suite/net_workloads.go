// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/peers/webclient"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const (
	nameEcho = "echo"
	// smallMessage is the length of a message, in bytes, where nothing else is said.
	smallMessage = 128
	largeMessage = 1024
)

// echoWork sends back what comes.
type echoWork struct{}

func (echoWork) name() string { return nameEcho }

func (echoWork) engines() []string { return netEngines }

// cells returns the grid. By default larger messages are tried at three numbers of connections: one,
// many, and very many.
func (echoWork) cells(o NetOptions) []netCell {
	var out []netCell
	for _, procs := range echoProcs(o) {
		for _, size := range echoSizes(o, procs) {
			for _, n := range o.connectionsOr(echoConnections(o, size, procs)...) {
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

func (echoWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	s, err := n.env.Round(ctx, echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin}, n.programs[engine], n.job(c, n.opts.Duration))
	return n.echoSample(s), err
}

// job is a round of a cell with our load generator.
func (n *netRun) job(c netCell, window time.Duration) loadgen.Job {
	return loadgen.Job{
		Connections: c.connections, Size: c.size, Warm: netWarm(c, window), Measure: window, Count: countFor(window),
	}
}

// netWarm is enough for every connection to have sent some messages.
func netWarm(c netCell, window time.Duration) time.Duration {
	return min(warmFor(window), 60*time.Millisecond+time.Duration(c.connections)*20*time.Microsecond)
}

// countFor is how long system calls are counted after a window.
func countFor(window time.Duration) time.Duration {
	return min(max(window/8, 2*time.Millisecond), 40*time.Millisecond)
}

// loadWork is a workload that differs from echo in how connections are used.
type loadWork struct {
	title string
	// all are the engines that it can be measured with, own those that are by default.
	all, own []string
	// sizes and connections are the grid; variants are values of the parameter that tells cells apart
	// besides, with their names.
	sizes, connections []int
	param              string
	variants           []any
	// set changes server and load for a cell.
	set func(c netCell, s *echo.Setup, j *loadgen.Job)
	// bytes reports whether the rate in bytes is the result.
	bytes bool
}

var (
	// socketEngines have net.Conn and net.PacketConn, echoEngines all that echo on TCP.
	socketEngines = []string{echo.NameStd, echo.NameConn, echo.NamePlain}
	streamEngines = append(slices.Clone(socketEngines), echo.NameEvent, echo.NameEpoll)
	usualEngines  = []string{echo.NameStd, echo.NameConn, echo.NameEvent}

	pipelineWork = loadWork{
		title: "pipeline", all: netEngines, own: usualEngines, sizes: []int{smallMessage}, connections: []int{1, 50},
		param: "messages", variants: []any{16},
		set: func(c netCell, _ *echo.Setup, j *loadgen.Job) { j.Pipeline = c.more["messages"].(int) },
	}
	streamWork = loadWork{
		title: "stream", all: streamEngines, own: usualEngines, sizes: []int{1 << 20}, connections: []int{1, 4, 32},
		param: "direction", variants: []any{"in", "out"}, bytes: true,
		set: func(c netCell, s *echo.Setup, j *loadgen.Job) {
			s.Take, s.Give, j.Size, j.Reply = c.size, 1, c.size, 1
			if c.more["direction"] == "out" {
				s.Take, s.Give, j.Size, j.Reply, j.Discard = 1, c.size, 1, c.size, c.size >= largeFile
			}
		},
	}
	churnWork = loadWork{
		title: "churn", all: netEngines, own: usualEngines, sizes: []int{smallMessage}, connections: []int{1, 50},
		set: func(_ netCell, _ *echo.Setup, j *loadgen.Job) { j.Churn = true },
	}
	unixWork = loadWork{
		title: "unix", all: append(slices.Clone(streamEngines), echo.NameNetpoll), own: usualEngines, sizes: []int{smallMessage}, connections: []int{1, 100},
		set: func(_ netCell, s *echo.Setup, _ *loadgen.Job) { s.Network = "unix" },
	}
	udpWork = loadWork{
		title: "udp", all: socketEngines, own: socketEngines[:2], sizes: []int{smallMessage}, connections: []int{1, 16, 100},
		set: func(_ netCell, s *echo.Setup, _ *loadgen.Job) { s.Network = "udp" },
	}
	tlsWork = loadWork{
		title: "tls", all: streamEngines, own: usualEngines, sizes: []int{smallMessage}, connections: []int{1, 100},
		set: func(_ netCell, s *echo.Setup, j *loadgen.Job) { s.TLS, j.TLS = true, true },
	}
)

func (w loadWork) name() string { return w.title }

func (w loadWork) engines() []string { return w.all }

func (w loadWork) cells(o NetOptions) []netCell {
	variants := w.variants
	if variants == nil {
		variants = []any{nil}
	}
	var out []netCell
	for _, procs := range orOwn(o.Procs, []int{0}) {
		for _, size := range orOwn(o.Sizes, w.sizes) {
			for _, v := range variants {
				for _, n := range o.connectionsOr(w.connections...) {
					c := netCell{workload: w.title, connections: n, size: size, procs: procs}
					if v != nil {
						c.more = report.Params{w.param: v}
					}
					out = append(out, c)
				}
			}
		}
	}
	return out
}

func (w loadWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	setup, job := echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin}, n.job(c, n.opts.Duration)
	w.set(c, &setup, &job)
	s, err := n.env.Round(ctx, setup, n.programs[engine], job)
	if err != nil {
		return report.Sample{}, err
	}
	out := n.echoSample(s)
	if w.bytes {
		out.Metrics[measure.MBPerS] = float64(c.size) * out.Metrics[measure.OpsPerS] / 1e6
	}
	return out, nil
}

const nameHandlers = "handlers"

// handlersWork computes or sleeps for each message before it is sent back.
type handlersWork struct{}

func (handlersWork) name() string { return nameHandlers }

func (handlersWork) engines() []string {
	return []string{echo.NameStd, echo.NameConn, echo.NamePlain}
}

func (handlersWork) cells(o NetOptions) []netCell {
	var out []netCell
	for _, procs := range orOwn(o.Procs, []int{0}) {
		for _, n := range o.connectionsOr(20) {
			for _, h := range []handlerWork{
				{compute: 5 * time.Microsecond},
				{compute: 50 * time.Microsecond},
				{compute: 500 * time.Microsecond},
				{sleep: 500 * time.Microsecond},
			} {
				for _, size := range orOwn(o.Sizes, []int{smallMessage}) {
					out = append(out, netCell{workload: nameHandlers, connections: n, size: size, procs: procs, handler: h})
				}
			}
		}
	}
	return out
}

// handlerWindows is how much longer the windows are than others: scheduler's time slices of 10 ms
// decide here, of which a short window has too few.
const handlerWindows = 2

func (handlersWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	setup := echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin, Work: n.work(c.handler)}
	s, err := n.env.Round(ctx, setup, n.programs[engine], n.job(c, handlerWindows*n.opts.Duration))
	return n.echoSample(s), err
}

// work turns time to compute into steps; how many fit is measured once for a run, so that all engines
// have the same to do.
func (n *netRun) work(h handlerWork) echo.Work {
	if h.compute > 0 && n.spins == 0 {
		n.spins = n.env.Spins()
	}
	return echo.Work{Spins: int(n.spins * float64(h.compute) / float64(time.Microsecond)), Sleep: h.sleep}
}

const (
	nameHTTP = "http"
	// ownClient is our load generator.
	ownClient = "own"
)

// netClients are those that ask for web pages.
var netClients = []string{ownClient, webclient.NameAB, webclient.NameABKeep, webclient.NameWrk}

// httpWork is net/http on different listeners.
type httpWork struct{}

func (httpWork) name() string { return nameHTTP }

func (httpWork) engines() []string {
	return []string{echo.NameStd, echo.NameConn, echo.NamePlain}
}

// cells returns a part for each client: by default the own one, and with Full all. ab is asked for ten
// connections, more than which cost it too much.
func (httpWork) cells(o NetOptions) []netCell {
	clients := o.Clients
	if len(clients) == 0 {
		clients = netClients[:1]
		if o.Full {
			clients = netClients
		}
	}
	var out []netCell
	for _, client := range clients {
		connections := []int{10, 500}
		if client == webclient.NameAB || client == webclient.NameABKeep {
			connections = []int{10}
		}
		for _, procs := range orOwn(o.Procs, []int{0}) {
			for _, size := range orOwn(o.Sizes, []int{smallMessage}) {
				for _, n := range o.connectionsOr(connections...) {
					out = append(out, netCell{workload: nameHTTP, connections: n, size: size, procs: procs, client: client})
				}
			}
		}
	}
	return out
}

func (httpWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	setup := echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin, HTTP: c.size}
	if c.client == ownClient {
		job := n.job(c, n.opts.Duration)
		job.HTTP = true
		s, err := n.env.Round(ctx, setup, n.programs[engine], job)
		return n.echoSample(s), err
	}
	s, err := n.env.Client(ctx, setup, webclient.Job{
		Client: c.client, Path: n.clients[c.client], Connections: c.connections, Measure: n.opts.Duration,
	})
	return n.echoSample(s), err
}

const (
	nameFiles = "files"
	// trialFile is asked for when engines show that they work.
	trialFile = "/trial.jpg"
	// From largeFile on the generator does not look at all of an answer. Where muchAtOnce is asked for,
	// a window must be longer to have some answers in it.
	largeFile  = 256 << 10
	muchAtOnce = 64 << 20
	// fullPipe bounds how many bytes may be asked for at once.
	fullPipe = 4 << 30
)

// filesEngines are those that serve files; the others are compared to the first.
var filesEngines = []string{echo.NameStd, echo.NameServe, echo.NameServeNet, echo.NameNginx}

// filesWork asks for a file that is in the page cache.
type filesWork struct{}

func (filesWork) name() string { return nameFiles }

func (filesWork) engines() []string {
	return []string{echo.NameStd, echo.NameServe, echo.NameServeNet, echo.NameConn, echo.NameNginx}
}

// cells returns each length of a file with each number of connections, unless together they are more than
// the machine could send in a window.
func (filesWork) cells(o NetOptions) []netCell {
	var out []netCell
	for _, procs := range orOwn(o.Procs, []int{0}) {
		for _, size := range filesSizes(o) {
			for _, n := range o.connectionsOr(1, 32, 256) {
				if len(o.Connections) > 0 || int64(n)*int64(size) < fullPipe {
					out = append(out, netCell{workload: nameFiles, connections: n, size: size, procs: procs})
				}
			}
		}
	}
	return out
}

func filesSizes(o NetOptions) []int {
	return orOwn(o.Sizes, []int{1 << 10, 16 << 10, 1 << 20, 64 << 20})
}

// makeFiles makes a directory with a file for each length.
func makeFiles(o NetOptions) (dir string, err error) {
	if dir, err = os.MkdirTemp(DefaultDir(), "ringside-files-*"); err != nil {
		return "", err
	}
	names := map[string]int{trialFile: 1}
	for _, size := range filesSizes(o) {
		names[fileName(size)] = size
	}
	var seed [32]byte
	for name, size := range names {
		data := make([]byte, size)
		_, _ = rand.NewChaCha8(seed).Read(data) // never fails
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", errors.Join(err, os.RemoveAll(dir))
		}
	}
	return dir, nil
}

// fileName has a type that all engines know and none compresses.
func fileName(size int) string { return fmt.Sprintf("/%d.jpg", size) }

func (filesWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	window := n.opts.Duration
	if int64(c.size)*int64(c.connections) >= muchAtOnce {
		window *= 5
	}
	job := n.job(c, window)
	job.HTTP, job.Path, job.Discard = true, fileName(c.size), c.size >= largeFile
	s, err := n.env.Round(ctx, echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin, Files: n.files}, n.programs[engine], job)
	if err != nil {
		return report.Sample{}, err
	}
	return n.filesSample(s), nil
}

// filesSample counts answers by what was received of them: where few are sent in a window, it matters
// that its ends fall into some.
func (n *netRun) filesSample(s echo.Sample) report.Sample {
	out := n.echoSample(s)
	if s.Answer == 0 || s.Received == 0 {
		return out
	}
	answers := float64(s.Received) / float64(s.Answer)
	m := out.Metrics
	for _, perOp := range []string{measure.CPUUsPerOp, measure.BytesPerOp, measure.AllocsPerOp, measure.NsPerOp} {
		if v, ok := m[perOp]; ok {
			m[perOp] = v * float64(s.Ops) / answers
		}
	}
	m[measure.OpsPerS] = answers / s.Elapsed.Seconds()
	m[measure.MBPerS] = float64(s.Received) / 1e6 / s.Elapsed.Seconds()
	return out
}

const nameIdle = "idle"

// idleWork holds connections open, on which nothing happens.
type idleWork struct{}

func (idleWork) name() string { return nameIdle }

func (idleWork) engines() []string {
	return []string{echo.NameStd, echo.NameConn, echo.NamePlain, echo.NameEvent, liburing.Name}
}

func (idleWork) cells(o NetOptions) []netCell {
	var out []netCell
	for _, procs := range orOwn(o.Procs, []int{0}) {
		for _, n := range o.connectionsOr(1000, 10_000) {
			out = append(out, netCell{workload: nameIdle, connections: n, procs: procs})
		}
	}
	return out
}

const (
	// manyIdle is from where on memory is the question, and the window needs not be long.
	manyIdle = 5000
	// idleBuffer is the length of each connection's buffer in servers that have one. A program chooses
	// its own: a small one does not hide what the engines differ in.
	idleBuffer = 128
	idleSettle = 200 * time.Millisecond
)

func (idleWork) round(ctx context.Context, n *netRun, c netCell, engine string) (report.Sample, error) {
	job := echo.IdleJob{Connections: c.connections, Window: n.opts.IdleFor, Settle: min(idleSettle, n.opts.IdleFor)}
	if c.connections >= manyIdle {
		job.Window /= 10
	}
	s, err := n.env.Idle(ctx, echo.Setup{Engine: engine, Procs: c.procs, Pin: n.opts.Pin, Buffer: idleBuffer}, n.programs[engine], job)
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
