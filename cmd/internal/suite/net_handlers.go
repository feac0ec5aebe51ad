// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

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
	setup := echo.Setup{Engine: engine, Procs: c.procs, Work: n.work(c.handler)}
	s, err := n.env.Round(ctx, setup, n.peer, n.job(c, handlerWindows*n.opts.Duration))
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
