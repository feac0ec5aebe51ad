// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"regexp"
	"strings"
	"testing"
)

func sqliteRun() *Run {
	cell := func(work string, p Params, s ...Series) Cell {
		return Cell{Suite: "sqlite", Workload: work, Params: p, Series: s}
	}
	tenants := func(databases, connections int, more ...any) Params {
		p := Params{"journal": "wal", "databases": databases, "connections": connections}
		if len(more) > 0 {
			p["writer"] = more[0]
		}
		return p
	}
	slow, fast := []float64{10, 10, 12.5, 10}, []float64{20, 20, 25, 20}
	run := &Run{Host: exampleRun().Host}
	for test := 1; test <= 16; test++ {
		run.Cells = append(run.Cells, cell("speed", Params{"test": test},
			series("memory", false, 0, 1000, 1000, 1000, 1000), series("default-wal", false, 0, slow...), series("ringside-wal", false, 0, fast...),
			series("ringside-plain-rollback", false, 0, slow...), series("ringside-rollback", false, 0, slow...)))
	}
	run.Cells = append(run.Cells,
		cell("tenants", tenants(16, 1), series("default", false, 12, slow...), series("ringside-log", false, 8, fast...)),
		cell("tenants", tenants(16, 1, 32<<20), series("default", false, 12, slow...), series("ringside-log", false, 8, fast...)),
		cell("tenants", tenants(1, 4), series("default", false, 12, slow...), series("ringside-log", false, 8, slow...)),
		cell("cold", Params{"what": "scan", "rows": 100}, cold(series("default", false, 0, slow...), 1), cold(series("ringside", false, 0, fast...), 1)))
	return run
}

func TestSQLiteTables(t *testing.T) {
	run := sqliteRun()
	var b bytes.Buffer
	if err := run.WriteTable(&b, SQLiteLayout, Style{}); err != nil {
		t.Fatal(err)
	}
	for _, line := range SQLiteLayout.Summary(run) {
		b.WriteString(line + ".\n")
	}
	if err := run.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(b.String(), " ")
	for _, want := range []string{
		"test 1: INSERTs\nCommand Mean [ms] Min [ms] Max [ms] Relative CPU [ms]\nmemory 1.0 ± 0.0 1.0 1.0 1.00 1.0\n",
		"\ndefault-wal 95.0 ± 10.0 80.0 100.0 95.00 ± 10.00 100.0\n", "\ntest 16: DROP TABLE\n",
		"\ncommits, wal, databases with a connection each\n", "beside a writer of 32 MiB/s\n", "one database with several connections\n",
		"ringside-log_16 ", "ringside-log_4 ", " vs default ", "\ncold, scan of a fragmented table, 100 rows\n", " from the device\n", " 100 %\n",
		"speed, ringside-wal vs default-wal: faster at test 1 (2.00x), test 2 (2.00x)",
		"leaves out): no difference beyond the spread at 16 points; there the rate is 1.00x.\n",
		"tenants, ringside-log vs default (the log that databases share): faster at 16 databases (wal) (2.00x)",
		"no difference beyond the spread at 4 connections to one database (wal)", "cold, ringside vs default: faster at scan of a fragmented table (2.00x).\n",
		"Speed/test=1/engine=default-wal",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("%q is missing in\n%s", want, text)
		}
	}
	for i := range run.Cells {
		for j := range run.Cells[i].Series {
			s := &run.Cells[i].Series[j]
			s.Samples = s.Samples[:2]
		}
	}
	if lines := SQLiteLayout.Summary(run); len(lines) != 1 || !strings.Contains(lines[0], "too few pairs") {
		t.Errorf("two pairs: %q", lines)
	}
}
