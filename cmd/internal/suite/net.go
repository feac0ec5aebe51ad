// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/clone"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const netSuite = "net"

// NetPeer is a server program that is compiled for the run.
type NetPeer interface {
	// Command returns the command that starts it.
	Command() []string
	// Version returns the versions of its library and compiler.
	Version() string
	// Remove removes the program's files.
	Remove() error
}

func netWorkloadOf(name string) netWorkload {
	i := slices.IndexFunc(netWorkloads, func(w netWorkload) bool { return w.name == name })
	return netWorkloads[i]
}

// Net runs the suite "net". It always returns a report, which is complete only if the error is nil.
// It removes the programs that it compiled in any case.
func Net(ctx context.Context, opts NetOptions, env Env) (run *report.Run, err error) {
	opts = opts.withDefaults()
	n := &netRun{runner: newRunner(netSuite, opts.Timing, env.Progress, ""), opts: opts, env: env, clients: map[string]string{}, programs: map[string]NetPeer{}}
	n.run.Host.Verified = true
	wanted := n.opts.wanted()
	defer func() {
		for _, p := range n.programs {
			err = errors.Join(err, p.Remove())
		}
	}()
	for _, name := range wanted {
		if isForeign(name) {
			n.build(ctx, name)
		}
	}
	n.absent()
	if err := n.try(ctx, wanted); err != nil {
		return n.run, err
	}
	cells := n.possible(ctx)
	if len(cells) == 0 {
		return n.run, ErrNothing
	}
	return n.run, n.measure(ctx, n.points(cells))
}

// netRun is the state of one run of the suite.
type netRun struct {
	runner
	opts NetOptions
	env  Env
	// programs are the foreign engines that were built.
	programs map[string]NetPeer
	// working are the engines that work here. clients are the paths of the client programs.
	working []string
	clients map[string]string
	// spins is the result of Spins, 0 before the first call.
	spins float64
}

// isForeign reports whether an engine is a program that is compiled for the run.
func isForeign(engine string) bool { return engine == liburing.Name || clone.Is(engine) }

// build builds the program of an engine, or notes why it cannot.
func (n *netRun) build(ctx context.Context, name string) {
	n.env.Progress.Start(1, "compiling "+name)
	p, err := n.env.buildServer(ctx, name, n.opts.Clones[clone.Flag(name)])
	switch {
	case err == nil:
		n.programs[name] = p
	case ctx.Err() == nil:
		n.skip(report.Skip{Workload: nameEcho, Engine: name, Reason: err.Error()})
	}
}

// absent notes the engines that readers expect and that are missing.
func (n *netRun) absent() {
	if !n.opts.chosen(nameEcho) || !n.opts.Full || len(n.opts.Engines) > 0 {
		return
	}
	for _, name := range clone.Names {
		if n.opts.Clones[clone.Flag(name)] == "" {
			n.skip(report.Skip{
				Workload: nameEcho, Engine: name,
				Reason: fmt.Sprintf("it is built from a clone of its repository: name one with --%s DIR", clone.Flag(name)),
			})
		}
	}
}

// try runs a short round with each engine to see whether it works here.
func (n *netRun) try(ctx context.Context, engines []string) error {
	n.env.Progress.Start(int64(len(engines)), "trying the engines")
	for _, name := range engines {
		if isForeign(name) && n.programs[name] == nil {
			continue
		}
		setup, job := echo.Setup{Engine: name, Pin: n.opts.Pin}, loadgen.Job{Connections: 1, Size: 1, Measure: 5 * time.Millisecond}
		if slices.Contains(batchEngines, name) {
			setup.Network = "udp"
		}
		s, err := n.env.Servers.Round(ctx, setup, n.programs[name], job)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			n.skip(report.Skip{Engine: name, Reason: err.Error()})
			continue
		}
		n.working = append(n.working, name)
		n.introduce(name, s)
		n.env.Progress.Add(1)
	}
	return nil
}

// introduce records the backend that an engine reports.
func (n *netRun) introduce(name string, s echo.Sample) {
	h := &n.run.Host
	if s.By == "epoll" && !slices.Contains(batchEngines, name) { // datagrams always use it
		n.note("the load generator uses epoll and costs more than with io_uring: rates are bounded by it")
	}
	switch {
	case isForeign(name):
		n.peer(n.programs[name].Version())
	case name == echo.NameEvent:
		h.Backend, h.Reason = s.Backend, s.Reason
	case s.Reason != "" && s.Backend == "net":
		n.note("engine %s uses %s: %s", name, s.Backend, s.Reason)
	}
}

// enginesOf returns the working engines for a cell.
func (n *netRun) enginesOf(c netCell) []string {
	return slices.DeleteFunc(slices.Clone(n.opts.enginesOf(c)), func(e string) bool {
		return !slices.Contains(n.working, e)
	})
}

// points returns the cells with the functions that run them.
func (n *netRun) points(cells []netCell) []point {
	var out []point
	for _, c := range cells {
		w := netWorkloadOf(c.workload)
		out = append(out, point{
			workload: c.workload, params: c.params(), engines: n.enginesOf(c),
			round: func(ctx context.Context, name string, _ int) (report.Sample, error) { return w.run(ctx, n, c, name) },
			open:  n.opener(c),
			sample: func(_ string, s measure.Sample) report.Sample {
				out := sampleOf(s)
				if w.bytes {
					out.Metrics[measure.MBPerS] = float64(c.size) * out.Metrics[measure.OpsPerS] / 1e6
				} else {
					delete(out.Metrics, measure.MBPerS)
				}
				return out
			},
		})
	}
	return out
}

// opener returns the function that starts an engine of the cell for turns, or nil if the cell has a
// client by others or needs a long window.
func (n *netRun) opener(c netCell) func(ctx context.Context, name string, _ int) (measure.Player, error) {
	w := netWorkloadOf(c.workload)
	if n.env.Servers.Open == nil || w.round != nil && c.client != ownClient {
		return nil
	}
	return func(ctx context.Context, name string, _ int) (measure.Player, error) {
		setup, job := w.parts(n, c, name)
		job.Warm, job.Count = job.Warm/2, job.Count/2
		return n.env.Servers.Open(ctx, setup, n.programs[name], job)
	}
}

// busyGenerator is the CPU share of the load generator's thread above which the generator, and not
// the server, is assumed to limit the rate.
const busyGenerator = 0.95

// echoSample turns a round into a sample of the report. CPU time, allocations and system calls are
// those of the server.
func (n *netRun) echoSample(s echo.Sample) report.Sample {
	if s.Ops == 0 {
		return report.Sample{} // of a round that failed
	}
	cpu := s.CPU
	sample := measure.Sample{Ops: s.Ops, Elapsed: s.Elapsed, CPU: &cpu, P50: s.P50, P99: s.P99, Max: s.Max}
	if s.Go {
		sample.Heap = &measure.Heap{Bytes: s.Bytes, Objects: s.Objects}
	}
	m := sample.Metrics()
	if s.Enters >= 0 {
		m[report.EntersPerOp] = float64(s.Enters) / float64(s.Ops)
	}
	if s.Counted > 0 {
		m[report.SyscallsPerOp] = float64(s.Syscalls) / float64(s.Counted)
	}
	if n.opts.Pin && s.Busy > busyGenerator {
		n.note("the load generator was busy for more than %.0f %% of a window: what is faster than it shows no more", 100*busyGenerator)
	}
	if s.Uncounted != "" {
		n.note("no system calls per operation: %s", s.Uncounted)
	}
	return report.Sample{Iterations: s.Ops, Metrics: m}
}

// netCell is one point of the grid.
type netCell struct {
	workload    string
	connections int
	// size is the length of a message or of a response body, or 0 if there are none.
	size int
	// procs is the GOMAXPROCS of the server, or 0 for the default.
	procs int
	// handler is the work for a message, zero for echoes.
	handler handlerWork
	// client is the client program of web requests.
	client string
	// more has further parameters by their names in result files.
	more report.Params
}

// handlerWork is the work of a handler: time to compute and time to sleep.
type handlerWork struct{ compute, sleep time.Duration }

func (h handlerWork) String() string {
	if h.sleep > 0 {
		return "sleep " + h.sleep.String()
	}
	return "compute " + h.compute.String()
}

// params describes the cell in the report.
func (c netCell) params() report.Params {
	p := report.Params{"connections": c.connections}
	if c.size > 0 {
		p["size"] = c.size
	}
	if c.procs > 0 {
		p["gomaxprocs"] = c.procs
	}
	if c.handler != (handlerWork{}) {
		p["handler"] = c.handler.String()
	}
	if c.client != "" {
		p["client"] = c.client
	}
	maps.Copy(p, c.more)
	return p
}

// possible returns the cells that can be measured here, and notes the others as skipped.
func (n *netRun) possible(ctx context.Context) []netCell {
	limit, ports := n.env.descriptors(), n.env.ports()
	return slices.DeleteFunc(n.opts.cells(), func(c netCell) bool {
		reason := tooMany(c.connections, limit, ports)
		if reason == "" {
			reason = n.missingClient(ctx, c)
		}
		if reason == "" && c.workload == nameFastHTTP && !n.env.fastHTTP {
			reason = echo.ErrNoFastHTTP.Error()
		}
		if reason != "" {
			s := report.Skip{Workload: c.workload, Params: c.params(), Reason: reason}
			if reason == echo.ErrNoFastHTTP.Error() {
				s.Params = nil // this build has no cell of the workload
			}
			n.skip(s)
		}
		return reason != "" || len(n.enginesOf(c)) == 0
	})
}

// tooMany returns the reason why so many connections are not possible, or "".
func tooMany(connections, descriptors, ports int) string {
	const others = 64 // descriptors of a process beside its connections
	if descriptors > 0 && connections+others > descriptors {
		return fmt.Sprintf("a process may have only %d descriptors: raise its hard limit, as root with ulimit -Hn %d",
			descriptors, connections+others)
	}
	// The kernel uses half of the ports first; searching the other half takes time.
	if ports > 0 && connections > ports/2 {
		return fmt.Sprintf("the system has only %d ports for connections: sysctl -w net.ipv4.ip_local_port_range='1024 65535'", ports)
	}
	return ""
}

// Driver is a load generator by others. Drive runs it with the server at addr.
type Driver interface {
	Drive(ctx context.Context, addr string) (loadgen.Result, error)
}

// missingClient returns the reason why a cell's client is not available, or "". It searches for
// each client once.
func (n *netRun) missingClient(ctx context.Context, c netCell) string {
	if c.client == "" || c.client == ownClient || n.clients[c.client] != "" {
		return ""
	}
	path, version, err := n.env.findClient(ctx, c.client)
	if err != nil {
		return err.Error()
	}
	n.clients[c.client] = path
	n.peer(version)
	return ""
}
