// SPDX-License-Identifier: MIT

package htmlreport

import (
	"math"

	"gonum.org/v1/plot"
)

// shortTicks writes numbers of any size in few letters.
type shortTicks struct{ plot.DefaultTicks }

// Ticks returns those of the default with short words.
func (t shortTicks) Ticks(low, high float64) []plot.Tick {
	ticks := t.DefaultTicks.Ticks(low, high)
	for i := range ticks {
		if ticks[i].Label != "" {
			ticks[i].Label = short(ticks[i].Value)
		}
	}
	return ticks
}

// decadeTicks are for logarithmic axes: 1, 2, 5, 10, and so on.
type decadeTicks struct{ suffix string }

// Ticks marks 1, 2 and 5 of each power of ten; where there are many, only the powers have words.
func (t decadeTicks) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	if low <= 0 || math.IsInf(high, 0) || math.IsNaN(high) {
		return nil
	}
	few := high/low < 200
	for p := math.Floor(math.Log10(low)); p <= math.Ceil(math.Log10(high)); p++ {
		for _, m := range []float64{1, 2, 5} {
			v := m * math.Pow(10, p)
			if v < low || v > high {
				continue
			}
			tick := plot.Tick{Value: v}
			if m == 1 || few {
				tick.Label = short(v) + t.suffix
			}
			out = append(out, tick)
		}
	}
	return out
}

// at marks just these values.
func at(values []float64) plot.ConstantTicks {
	var out plot.ConstantTicks
	for _, v := range values {
		out = append(out, plot.Tick{Value: v, Label: short(v)})
	}
	return out
}
