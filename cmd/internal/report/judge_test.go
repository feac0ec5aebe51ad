// SPDX-License-Identifier: MIT

package report

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// pairsRun returns a run with one cell for each list of ratios.
func pairsRun(cells ...[]float64) *Run {
	r := &Run{}
	for _, ratios := range cells {
		base, s := Series{Engine: "os"}, Series{Engine: "ringside"}
		for _, ratio := range ratios {
			base.Samples = append(base.Samples, Sample{Metrics: map[string]float64{measure.OpsPerS: 1000}})
			s.Samples = append(s.Samples, Sample{Metrics: map[string]float64{measure.OpsPerS: 1000 * ratio}})
		}
		r.Cells = append(r.Cells, Cell{Suite: "file", Series: []Series{base, s}})
	}
	return r
}

// verdicts judges all cells.
func (r *Run) verdicts() []verdict {
	r.assessed()
	var out []verdict
	for _, c := range r.Cells {
		out = append(out, c.judge(c.Series[1], c.Series[0], measure.OpsPerS))
	}
	return out
}

func TestJudge(t *testing.T) {
	for _, tc := range []struct {
		ratios []float64
		want   verdict
	}{
		{[]float64{1.80, 1.92, 1.85, 1.86, 1.84}, faster},
		{[]float64{0.78, 0.79, 0.80, 0.78, 0.79}, slower},
		{[]float64{1.01, 1.012, 1.02, 1.015, 1.01}, alike},   // Certain, but negligible.
		{[]float64{1.01, 1.07, 1.45, 1.05, 1.30}, undecided}, // All pairs agree, but the spread is wide.
		{[]float64{0.99, 1.30, 1.40, 1.32, 1.20}, undecided},
		{[]float64{1.80, 1.92, 1.85}, tooFew},
	} {
		if got := pairsRun(tc.ratios).verdicts()[0]; got != tc.want {
			t.Errorf("%v: %v, want %v", tc.ratios, got, tc.want)
		}
	}
}

// noise returns a run of the given number of cells with two engines whose true ratio is
// ratio. The noise of the cells differs (1 to 20 %) and has heavy tails: sometimes a round
// is disturbed.
func noise(r *rand.Rand, cells, pairs int, ratio float64) *Run {
	var all [][]float64
	for range cells {
		scale := 0.01 * math.Pow(20, r.Float64())
		var ratios []float64
		for range pairs {
			x := scale * r.NormFloat64()
			if r.IntN(10) == 0 {
				x *= 5
			}
			ratios = append(ratios, ratio*math.Exp(x))
		}
		all = append(all, ratios)
	}
	return pairsRun(all...)
}

// TestFewFalseDifferences compares a binary with itself: fewer than one whole run in a
// hundred reports a difference.
func TestNullRuns(t *testing.T) {
	const runs = 2000
	r := rand.New(rand.NewPCG(1, 2))
	wrong := 0
	for range runs {
		for _, v := range noise(r, 100, 5, 1).verdicts() {
			if v == faster || v == slower {
				wrong++
				break
			}
		}
	}
	if wrong > runs/100 {
		t.Errorf("%d of %d runs report a difference although there is none", wrong, runs)
	}
}

// TestRealDifferencesAreFound checks that differences that matter to a user are found in a
// run of the usual length.
func TestRealDifferencesAreFound(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	found := 0
	const runs, cells = 20, 100
	for range runs {
		for _, v := range noise(r, cells, 5, 1.5).verdicts() {
			if v == faster {
				found++
			}
		}
	}
	if found < runs*cells/2 {
		t.Errorf("a difference of 50 %% was found in %d of %d cells", found, runs*cells)
	}
}
