// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/loadgen"
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
	s, err := n.env.Round(ctx, echo.Setup{Engine: engine, Procs: c.procs}, n.peer, n.job(c, n.opts.Duration))
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
