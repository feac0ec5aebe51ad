// SPDX-License-Identifier: MIT

package generator

import "testing"

// FuzzParse parses any bytes as the output of the programs: the result is an error or valid figures.
// Promise: cli/result-files-output
func FuzzParse(f *testing.F) {
	f.Add(abSaid, abTable)
	f.Add(abSaid, "50\n")
	f.Add(wrkSaid, "50,NaN\n")
	f.Fuzz(func(t *testing.T, out, table string) {
		if r, err := parseAB(out, table); err == nil && (r.Ops <= 0 || r.Elapsed <= 0 || r.P50 < 0 || r.P99 < 0 || r.Max < 0) {
			t.Errorf("ab: %+v", r)
		}
		if r, err := parseWrk(out); err == nil && (r.Ops <= 0 || r.Elapsed <= 0 || r.P50 < 0 || r.P99 < 0 || r.Max < 0) {
			t.Errorf("wrk: %+v", r)
		}
	})
}
