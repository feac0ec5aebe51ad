// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

func TestWatchLayout(t *testing.T) {
	cell := func(p Params) Cell {
		c := Cell{Suite: "watch", Workload: "events", Params: p}
		c.Series = []Series{
			series("epoll", false, 0, 1e6, 1e6, 1e6, 1e6, 1e6), series("io_uring", false, 0, 2e6, 2e6, 2e6, 2e6, 2e6),
		}
		for _, s := range c.Series {
			for _, sample := range s.Samples {
				sample.Metrics[measure.FloorNsPerOp] = 432
			}
		}
		return c
	}
	run := &Run{Host: exampleRun().Host, Cells: []Cell{
		cell(Params{"source": "eventfd", "mode": "edge", "active": 100}),
		cell(Params{"source": "eventfd", "mode": "edge", "active": 100, "idle": 10000}),
		cell(Params{"source": "socketpair", "mode": "edge", "active": 100}),
		cell(Params{"source": "wake"}),
		cell(Params{"source": "sun"}),
	}}
	var b bytes.Buffer
	if err := run.WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(answer(run) + "\n")
	if err := run.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"events, eventfds\n", "events, pairs of sockets\n", "events, wakes from another goroutine\n", "events, sun\n",
		"epoll_edge_100 ", "io_uring_edge_100_10000 ", "\nio_uring ", "floor ns/op", "432.0", "2.00x (2.00–2.00)", "432 floor-ns/op",
		"gain watch on io_uring instead of watch on epoll, events: ", "eventfds edge 100 active with 10000 idle 2.00x (2.00–2.00) CPU 0.50", "wakes from another goroutine 2.00x",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
