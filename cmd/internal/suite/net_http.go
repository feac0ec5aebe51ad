// SPDX-License-Identifier: MIT

package suite

import (
	"context"

	"github.com/ringside-io/ringside/cmd/internal/echo"
	"github.com/ringside-io/ringside/cmd/internal/peers/webclient"
	"github.com/ringside-io/ringside/cmd/internal/report"
)

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
	setup := echo.Setup{Engine: engine, Procs: c.procs, HTTP: c.size}
	if c.client == ownClient {
		job := n.job(c, n.opts.Duration)
		job.HTTP = true
		s, err := n.env.Round(ctx, setup, n.peer, job)
		return n.echoSample(s), err
	}
	s, err := n.env.Client(ctx, setup, webclient.Job{
		Client: c.client, Path: n.clients[c.client], Connections: c.connections, Measure: n.opts.Duration,
	})
	return n.echoSample(s), err
}
