// SPDX-License-Identifier: MIT

package report

import (
	"bytes"
	"io"
	"os"
	"testing"
)

// FuzzReadDocument reads arbitrary bytes as a result file. It formats and compares each
// valid result.
// Promise: cli/result-files-output
func FuzzReadDocument(f *testing.F) {
	kept, err := os.ReadFile("testdata/run.json")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(kept)
	for _, text := range []string{
		`{"schema":3,"host":{},"results":[{"suite":"file","workload":"randread","params":{"block":1e308},"engine":"os","metrics":{"ops_per_s":{"median":1,"min":0,"max":-1}},"samples":{"ops_per_s":[0]}},{"suite":"file","workload":"randread","params":{"block":1e308},"engine":"ringside","metrics":{},"samples":{"ops_per_s":[1]}}]}`,
		`{"schema":3,"results":[{"suite":"sqlite","workload":"speed","params":{"test":-1},"engine":"default-wal","metrics":{},"samples":{"ns_per_op":[]}}]}`,
		`{"schema":3,"results":[{"suite":"","workload":"","params":null,"engine":"","metrics":null}]}`,
		`{"schema":1,"results":[]}`, `{}`, `[]`, ``,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		d, err := ReadDocument(bytes.NewReader(b))
		if err != nil {
			return
		}
		if err := Compare(d, d).WriteText(io.Discard, true, Style{}); err != nil {
			t.Fatal(err)
		}
		run, err := d.Run()
		if err != nil {
			return
		}
		for _, name := range run.Suites() {
			part := run.Suite(name)
			if err := part.WriteTable(io.Discard, Style{}); err != nil {
				t.Fatal(err)
			}
			part.Answer()
		}
		run.Answer()
		_ = run.WriteJSON(io.Discard) // a number that JSON cannot represent is an error
	})
}
