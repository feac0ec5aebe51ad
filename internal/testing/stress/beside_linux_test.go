// SPDX-License-Identifier: MIT

package stress

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// TestOnly checks that rows have no steps of other rows, and runs each row without an
// engine.
func TestOnly(t *testing.T) {
	for _, row := range Rows() {
		s := Generate("kernel", 3, Size{6, 10}, func(rng *rand.Rand) Settings {
			set := KernelSettings(rng)
			set[Beside], set[NoRings] = 1, 1
			set.Only(row)
			return set
		})
		for _, a := range s.Workers {
			for _, step := range a.Steps {
				if !slices.Contains(rowVerbs[row], step.verb) || slices.Contains(rawVerbs, step.verb) {
					t.Fatalf("row %s: %v", row, step)
				}
			}
		}
		w, err := NewKernelEnv(s, memoryDir(t))
		if err != nil {
			t.Fatal(err)
		}
		if r := Run(w, s); r.Failed() || r.Operations == 0 {
			t.Errorf("row %s: %d operations, %s", row, r.Operations, strings.Join(r.Problems, "\n"))
		}
	}
}
