// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/hostinfo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

const (
	netSuite = "net"
	echoWork = "echo"
)

// NetPeer is the server in C.
type NetPeer interface {
	// Command returns how it is started.
	Command() []string
	// Version names library and compiler.
	Version() string
	// Remove removes what it left on the disk.
	Remove() error
}

// NetEnv is how the suite "net" reaches the world. All functions must be set.
type NetEnv struct {
	// Round runs one round. Of the engine in C it gets the peer.
	Round func(ctx context.Context, engine string, peer NetPeer, job loadgen.Job) (echo.Sample, error)
	// Descriptors is how many a process may have.
	Descriptors func() int
	// BuildPeer makes the program in C.
	BuildPeer func(context.Context) (NetPeer, error)
	// Progress is told how far the run is.
	Progress Progress
}

// Net runs the suite "net". It always returns a report, which is complete only if the error is nil;
// whatever happens, the program it compiled is gone when it returns.
func Net(ctx context.Context, opts NetOptions, env NetEnv) (run *report.Run, err error) {
	n := &netRun{opts: opts.withDefaults(), env: env, run: &report.Run{}}
	n.run.Host = hostinfo.Collect("")
	n.run.Host.Pairs, n.run.Host.Verified = n.opts.Pairs, true
	n.run.Host.DurationMs = float64(n.opts.Duration) / float64(time.Millisecond)
	if slices.Contains(n.opts.Engines, liburing.Name) {
		n.build(ctx)
	}
	if n.peer != nil {
		defer func() { err = errors.Join(err, n.peer.Remove()) }()
	}
	if err := n.try(ctx); err != nil {
		return n.run, err
	}
	cells := n.possible()
	if len(n.engines) == 0 || len(cells) == 0 {
		return n.run, ErrNothing
	}
	return n.run, n.measure(ctx, cells)
}

// netRun is the state of one run of the suite.
type netRun struct {
	opts    NetOptions
	env     NetEnv
	run     *report.Run
	peer    NetPeer
	engines []string
}

func (n *netRun) skip(s report.Skip) {
	s.Suite, s.Workload = netSuite, echoWork
	n.run.Skipped = append(n.run.Skipped, s)
}

// build makes the peer, or notes why there is none.
func (n *netRun) build(ctx context.Context) {
	n.env.Progress.Start(1, "compiling the peer")
	peer, err := n.env.BuildPeer(ctx)
	switch {
	case err == nil:
		n.peer = peer
	case ctx.Err() == nil:
		n.skip(report.Skip{Engine: liburing.Name, Reason: err.Error()})
	}
}

// try lets each engine show in a short round that it works here.
func (n *netRun) try(ctx context.Context) error {
	n.env.Progress.Start(int64(len(n.opts.Engines)), "trying the engines")
	for _, name := range n.opts.Engines {
		if name == liburing.Name && n.peer == nil {
			continue
		}
		s, err := n.env.Round(ctx, name, n.peer, loadgen.Job{Connections: 1, Size: 1, Measure: 5 * time.Millisecond})
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			n.skip(report.Skip{Engine: name, Reason: err.Error()})
			continue
		}
		n.engines = append(n.engines, name)
		n.introduce(name, s)
	}
	return nil
}

// introduce notes what an engine said of itself.
func (n *netRun) introduce(name string, s echo.Sample) {
	h := &n.run.Host
	if s.By == "epoll" && len(n.engines) == 1 {
		n.run.Notes = append(n.run.Notes, "the load generator uses epoll and costs more than with io_uring: rates are bounded by it")
	}
	switch {
	case name == liburing.Name:
		h.Peers = append(h.Peers, n.peer.Version())
	case name == echo.NameEvent:
		h.Backend, h.Reason = s.Backend, s.Reason
	case s.Reason != "":
		n.run.Notes = append(n.run.Notes, fmt.Sprintf("engine %s uses %s: %s", name, s.Backend, s.Reason))
	}
}

// possible returns the cells for which there are descriptors, and notes the others as skipped.
func (n *netRun) possible() []netCell {
	const others = 64 // descriptors of a process beside its connections
	limit := n.env.Descriptors()
	return slices.DeleteFunc(n.opts.cells(), func(c netCell) bool {
		if limit <= 0 || c.connections+others <= limit {
			return false
		}
		n.skip(report.Skip{
			Params: report.Params{"connections": c.connections, "size": c.size},
			Reason: fmt.Sprintf("a process may have only %d descriptors (ulimit -n)", limit),
		})
		return true
	})
}

// measure runs all cells.
func (n *netRun) measure(ctx context.Context, cells []netCell) error {
	n.env.Progress.Start(int64(n.opts.Pairs*len(n.engines)*len(cells)), "measuring")
	for _, c := range cells {
		if err := n.measureCell(ctx, c); err != nil {
			if ctx.Err() != nil {
				return fmt.Errorf("stopped after %d of %d cells: %w", len(n.run.Cells), len(cells), ctx.Err())
			}
			return fmt.Errorf("%s, %d connections, %d bytes: %w", echoWork, c.connections, c.size, err)
		}
	}
	return nil
}

// measureCell runs the engines in turn and adds the cell to the report.
func (n *netRun) measureCell(ctx context.Context, c netCell) error {
	job := loadgen.Job{
		Connections: c.connections, Size: c.size, Warm: warmFor(n.opts.Duration), Measure: n.opts.Duration,
	}
	samples, err := measure.Interleave(ctx, n.opts.Pairs, n.engines,
		func(ctx context.Context, name string, _ int) (echo.Sample, error) {
			n.env.Progress.Note("%s, %d connections, %d bytes", echoWork, c.connections, c.size)
			s, err := n.env.Round(ctx, name, n.peer, job)
			if err != nil {
				return s, fmt.Errorf("engine %s: %w", name, err)
			}
			n.env.Progress.Add(1)
			return s, nil
		})
	if err != nil {
		return err
	}
	out := report.Cell{
		Suite: netSuite, Workload: echoWork, Params: report.Params{"connections": c.connections, "size": c.size},
	}
	for i, name := range n.engines {
		series := report.Series{Engine: name}
		for _, s := range samples[i] {
			series.Samples = append(series.Samples, report.Sample{Iterations: s.Ops, Metrics: echoMetrics(s)})
		}
		out.Series = append(out.Series, series)
	}
	n.run.Cells = append(n.run.Cells, out)
	return nil
}

// echoMetrics returns a sample under the names of result files. CPU time and allocations are those
// of the server.
func echoMetrics(s echo.Sample) map[string]float64 {
	cpu := s.CPU
	sample := measure.Sample{Ops: s.Ops, Elapsed: s.Elapsed, CPU: &cpu, P50: s.P50, P99: s.P99, Max: s.Max}
	if s.Go {
		sample.Heap = &measure.Heap{Bytes: s.Bytes, Objects: s.Objects}
	}
	m := sample.Metrics()
	if s.Enters >= 0 {
		m[report.EntersPerOp] = float64(s.Enters) / float64(s.Ops)
	}
	return m
}
