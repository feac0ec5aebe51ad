// SPDX-License-Identifier: MIT

package ab

import "testing"

const tenPercentiles = "Percentage served,Time in ms\n50,1\n66,1\n75,1\n80,1\n90,1\n95,1\n98,1\n99,1\n"

// FuzzParse takes anything for what ab printed: an error or times that can be.
func FuzzParse(f *testing.F) {
	f.Add(printed, tenPercentiles)
	f.Add(printed, "50\n")
	f.Add("Time taken for tests: NaN seconds\nComplete requests: -1\n", "")
	f.Fuzz(func(t *testing.T, out, exact string) {
		r, err := parse([]byte(out), []byte(exact))
		if err != nil {
			return
		}
		if r.Elapsed <= 0 || r.Requests <= 0 || len(r.Percentiles) != len(Percents) {
			t.Errorf("%+v", r)
		}
		for _, v := range r.Percentiles {
			if !(v >= 0) {
				t.Errorf("%v", r.Percentiles)
			}
		}
	})
}
