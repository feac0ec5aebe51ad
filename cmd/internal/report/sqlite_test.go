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
	if err := run.WriteTable(&b, Style{}); err != nil {
		t.Fatal(err)
	}
	b.WriteString(answer(run) + "\n")
	if err := run.WriteBench(&b); err != nil {
		t.Fatal(err)
	}
	text := regexp.MustCompile(` +`).ReplaceAllString(b.String(), " ")
	for _, want := range []string{
		"test 1: INSERTs\nengine ms/op MB/s ops/s vs default CPU µs/op vs default", "\nmemory 1.000 4.096 1000 1000 ",
		"\ndefault-wal 100.0 0.041 10.00 100000 ", "\nringside-wal 50.00 0.082 20.00 2.00x (",
		"\nspeed, test 16: DROP TABLE\n", "\ntenants, wal\nengine_databases_connections ", "\ntenants, wal, with a writer of 32 MiB/s\n",
		"ringside-log_16_1 ", "ringside-log_1_4 ", " vs default ", "\ncold, scan of a fragmented table, 100 rows\n", " device\n", " 100 %\n",
		"gain sqlitevfs instead of the default VFS, not cached, scan of a fragmented table: 2.00x",
		"gain sqlitevfs with the shared log instead of the default VFS, commits, wal, 16 databases, 1 connection: 2.00x",
		"speed tests (geometric mean)", "Speed/test=1/engine=default-wal",
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
	if few := answer(run); !strings.Contains(few, "too few starts") || strings.Contains(few, "gain ") {
		t.Errorf("two pairs: %s", few)
	}
}
