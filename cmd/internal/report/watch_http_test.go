// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/ab"
)

func TestHTTPTables(t *testing.T) {
	run := &Run{Host: exampleRun().Host}
	for _, keep := range []bool{false, true} {
		c := Cell{Suite: "watch", Workload: "http", Params: Params{"requests": 500, "connections": 10, "keepalive": keep}}
		c.Series = []Series{
			series("epoll", false, 0, 1e6, 1e6, 1e6, 1e6, 1e6), series("io_uring", false, 0, 2e6, 2e6, 2e6, 2e6, 2e6),
		}
		for i, s := range c.Series {
			for _, sample := range s.Samples {
				for _, phase := range ab.Phases {
					for j, what := range []string{"min", "mean", "sd", "median", "max"} {
						sample.Metrics[ab.MetricPhase(phase, what)] = float64(j) / 4
					}
				}
				for _, p := range ab.Percents {
					sample.Metrics[ab.MetricPercentile(p)] = float64(p * 20 / (i + 1))
				}
			}
		}
		run.Cells = append(run.Cells, c)
	}
	var b bytes.Buffer
	if err := run.WriteTable(&b, WatchLayout, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, line := range run.Verdicts(WatchLayout, WatchLayout.Subject) {
		b.WriteString(line + ".\n")
	}
	if err := run.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(b.String(), " ")
	for _, want := range []string{
		"\nhttp, 500 requests, 10 at a time, connections kept\n", "http, 500 requests, 10 at a time, a connection for each\n",
		"\nConnect: 0 0.250 0.500 0.750 1 0 0.250 0.500 0.750 1\n", "\nTotal: 0 ", "\n50% 1 0.500 0.50x (0.50–0.50)\n", "\n100% 2 1 0.50x",
		"\nmean - - -\n", "\nrequests/s 1000000 2000000 2.00x (2.00–2.00)\n", "io_uring is faster than epoll at requests (2.00x)",
		"Http/connections=10/keepalive=true/requests=500/engine=io_uring", " 900 p90-us",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
