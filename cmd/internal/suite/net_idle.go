// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/peers/liburing"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

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
	s, err := n.env.Idle(ctx, echo.Setup{Engine: engine, Procs: c.procs, Buffer: idleBuffer}, n.peer, job)
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
