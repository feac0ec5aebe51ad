// SPDX-License-Identifier: MIT

package suite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ringside-io/ringside/cmd/internal/report"
)

// netCell is one point of the grid.
type netCell struct {
	workload    string
	connections int
	// size is the length of a message, or of an answer's body; 0 where there are none.
	size int
	// procs is the GOMAXPROCS of the server, 0 for the system's choice.
	procs int
	// handler is what is done for a message, nothing for echoes.
	handler handlerWork
	// client asks for web pages.
	client string
}

// handlerWork is what a handler does: it computes or sleeps.
type handlerWork struct{ compute, sleep time.Duration }

func (h handlerWork) String() string {
	if h.sleep > 0 {
		return "sleep " + h.sleep.String()
	}
	return "compute " + h.compute.String()
}

// params describe the cell in the report.
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
	return p
}

// String names the cell.
func (c netCell) String() string {
	words := []string{c.workload, fmt.Sprintf("%d connections", c.connections)}
	if c.size > 0 {
		words = append(words, fmt.Sprintf("%d bytes", c.size))
	}
	if c.procs > 0 {
		words = append(words, fmt.Sprintf("GOMAXPROCS %d", c.procs))
	}
	if c.handler != (handlerWork{}) {
		words = append(words, c.handler.String())
	}
	if c.client != "" {
		words = append(words, c.client)
	}
	return strings.Join(words, ", ")
}

// possible returns the cells that can be measured here, and notes the others as skipped.
func (n *netRun) possible(ctx context.Context) []netCell {
	limit, ports := n.env.Descriptors(), n.env.Ports()
	return slices.DeleteFunc(n.opts.cells(), func(c netCell) bool {
		reason := tooMany(c.connections, limit, ports)
		if reason == "" {
			reason = n.missingClient(ctx, c)
		}
		if reason != "" {
			n.skip(report.Skip{Workload: c.workload, Params: c.params(), Reason: reason})
		}
		return reason != "" || len(n.enginesOf(c)) == 0
	})
}

// tooMany says why there cannot be so many connections, "" if there can.
func tooMany(connections, descriptors, ports int) string {
	const others = 64 // descriptors of a process beside its connections
	if descriptors > 0 && connections+others > descriptors {
		return fmt.Sprintf("a process may have only %d descriptors: raise its hard limit, as root with ulimit -Hn %d",
			descriptors, connections+others)
	}
	// The system uses half of them before it searches for the others, which takes time.
	if ports > 0 && connections > ports/2 {
		return fmt.Sprintf("the system has only %d ports for connections: sysctl -w net.ipv4.ip_local_port_range='1024 65535'", ports)
	}
	return ""
}

// missingClient says why a cell's client cannot be had, "" if it can. It is looked for once.
func (n *netRun) missingClient(ctx context.Context, c netCell) string {
	if c.client == "" || c.client == ownClient || n.clients[c.client] != "" {
		return ""
	}
	path, version, err := n.env.FindClient(ctx, c.client)
	if err != nil {
		return err.Error()
	}
	n.clients[c.client] = path
	if !slices.Contains(n.run.Host.Peers, version) {
		n.run.Host.Peers = append(n.run.Host.Peers, version)
	}
	return ""
}
