// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"strings"
	"testing"
)

func ringRun() *Run {
	cell := func(ring string, batch int, s ...Series) Cell {
		return Cell{Suite: "ring", Workload: "nop", Params: Params{"ring": ring, "batch": batch}, Series: s}
	}
	run := &Run{
		Host: exampleRun().Host,
		Cells: []Cell{
			cell("default", 1, series("liburing", false, 0, 4e6, 4e6, 4e6, 4e6, 4e6), series("ringside", true, 7, 3.8e6, 3.8e6, 3.8e6, 3.8e6, 3.8e6)),
			cell("default", 16, series("liburing", false, 0, 1e7, 1e7, 1e7, 1e7, 1e7), series("ringside", true, 7, 1e7, 1e7, 1e7, 1e7, 1e7)),
			cell("defer", 1, series("ringside", true, 7, 3.8e6, 3.8e6, 3.8e6, 3.8e6, 3.8e6)),
		},
		Skipped: []Skip{{Suite: "ring", Workload: "nop", Engine: "liburing", Params: Params{"ring": "defer"}, Reason: "too old"}},
	}
	run.Host.Peers = []string{"liburing 2.3, gcc 12.2.0 -O2"}
	return run
}

func TestRingLayout(t *testing.T) {
	run := ringRun()
	var b bytes.Buffer
	if err := run.Host.WriteHeader(&b); err != nil {
		t.Fatal(err)
	}
	if err := run.WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(answer(run) + "\n")
	if err := run.WriteSkipped(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"peers:    liburing 2.3, gcc 12.2.0 -O2\n", "nop, default ring\n", "nop, single issuer with deferred task work\n",
		"liburing_1 ", "ringside_16 ", "vs liburing", "0.95x (0.95–0.95)",
		"same within 5 %: uring, no-ops, default ring, batch 16\n", "loss uring instead of liburing, no-ops, default ring, batch 1: ",
		"skipped: ring nop, engine liburing, single issuer with deferred task work: too old",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
	if _, alone, _ := strings.Cut(b.String(), "deferred task work\n"); strings.Contains(strings.Split(alone, "\n")[0], " vs ") {
		t.Errorf("a single engine is compared in\n%s", alone)
	}
}

func TestPeersAreInTheBenchFormat(t *testing.T) {
	var b bytes.Buffer
	if err := ringRun().WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"\npeers: liburing 2.3, gcc 12.2.0 -O2\n", "BenchmarkNop/batch=16/ring=default/engine=ringside-2 "} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is missing in\n%s", want, b.String())
		}
	}
}
