// SPDX-License-Identifier: MIT

package fio

import "testing"

// FuzzParse parses any bytes as fio's output: the result is an error or a valid sample.
// Promise: cli/result-files-output
func FuzzParse(f *testing.F) {
	f.Add([]byte(answer))
	f.Add([]byte(`{"jobs":[{"read":{"total_ios":-1,"iops":1e-300,"clat_ns":{"percentile":{"50.000000":-1}}}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := parse(b, 4096)
		if err == nil && (s.Ops <= 0 || s.Elapsed < 0 || *s.CPU < 0 || s.P50 < 0 || s.P99 < 0 || s.Max < 0) {
			t.Errorf("%+v", s)
		}
	})
}
