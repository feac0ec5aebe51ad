// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/report"
	"github.com/ringside-io/ringside/cmd/internal/workload"
)

// Asker is a program that asks a web server.
type Asker struct {
	// Name tells what it is, with its version; Note, if there is one, what a reader of the results
	// should know.
	Name, Note string
	// Program and Own are those of [workload.HTTP].
	Program []string
	Own     bool
}

// httpCells are two: each request has a connection of its own, and connections are kept.
func (w *watchRun) httpCells(ctx context.Context) ([]watchCell, error) {
	asker, err := w.env.Asker(ctx, w.opts.AB)
	if err != nil {
		return nil, err
	}
	w.run.Host.Peers = append(w.run.Host.Peers, asker.Name)
	if asker.Note != "" {
		w.run.Notes = append(w.run.Notes, asker.Note)
	}
	var out []watchCell
	for _, keep := range []bool{false, true} {
		h := workload.HTTP{
			Ask:     ab.Job{Requests: w.opts.Requests, Connections: w.opts.Connections, KeepAlive: keep},
			Program: asker.Program, Own: asker.Own,
		}
		out = append(out, watchCell{
			report.Params{"requests": w.opts.Requests, "connections": w.opts.Connections, "keepalive": keep},
			fmt.Sprintf("%d requests, %d at a time, kept %v", w.opts.Requests, w.opts.Connections, keep),
			workload.Job{Workload: HTTPWork, Goroutines: 1, HTTP: &h},
		})
	}
	return out, nil
}
