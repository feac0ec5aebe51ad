// SPDX-License-Identifier: MIT

package report

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// verdict is the result of a test of ratios.
type verdict int

const (
	undecided verdict = iota // the spread is too large for a verdict
	alike                    // any difference is smaller than alikeWithin
	faster
	slower
	tooFew
)

const (
	// minPairs is the least number of pairs for a verdict.
	minPairs = 4
	// minEffect is the smallest reported difference. A verdict of a difference means that the true
	// ratio differs from 1 by more than this.
	minEffect = 0.03
	// alikeWithin is the greatest difference between two engines that are called alike.
	alikeWithin = 0.1
	// falseRuns limits the share of runs that report a difference although there is none.
	falseRuns = 0.01
	// wrongAlike is the probability of calling different engines alike. No decision depends on it,
	// so it is not divided by the number of cells.
	wrongAlike = 0.05
	// priorDF is the weight, in degrees of freedom, of the other cells' spread in the estimate of a
	// cell's own.
	priorDF = 4
)

// family is the set of all comparisons of a run. They are judged together: if a hundred cells were
// judged one by one at 1 %, most runs would report a difference by chance.
type family struct {
	// comparisons is the number of comparisons. Each is judged at falseRuns/comparisons
	// (Bonferroni).
	comparisons int
	// looks is the maximum number of times that a cell was judged. pairs is the number of pairs at
	// its first look.
	looks, pairs int
	// variance is the median variance of the logarithms of a cell's ratios. The variance of five
	// pairs is a poor estimate; the other cells correct one that is too small by chance.
	variance float64
}

// assess makes all cells of the run one family.
func (r *Run) assess() {
	f := &family{looks: r.Host.Looks, pairs: r.Host.Pairs}
	var variances []float64
	for i := range r.Cells {
		c := &r.Cells[i]
		c.family = f
		for _, s := range c.Series[min(1, len(c.Series)):] {
			if logs, ok := logRatios(s, c.Series[0], measure.OpsPerS); ok {
				f.comparisons++
				variances = append(variances, variance(logs))
			}
			if _, ok := logRatios(s, c.Series[0], measure.CPUUsPerOp); ok {
				f.comparisons++
			}
		}
		for _, ch := range choices {
			for _, pair := range c.pairsOf(ch) {
				if pair[1].Engine != c.Series[0].Engine {
					f.comparisons += 2 // rate and CPU time
				}
			}
		}
	}
	if len(variances) > 0 {
		f.variance = measure.Summarize(variances).Median
	}
}

// assessed assesses the run unless the run, or the one it is a part of, has been assessed.
func (r *Run) assessed() {
	if slices.ContainsFunc(r.Cells, func(c Cell) bool { return c.family == nil || c.family != r.Cells[0].family }) {
		r.assess()
	}
}

// judge compares a metric of two series of the cell, pair by pair.
func (c Cell) judge(s, against Series, metric string) verdict {
	logs, ok := logRatios(s, against, metric)
	f := c.family
	if f == nil {
		f = &family{comparisons: 1}
	}
	if !ok {
		return undecided
	}
	return f.judge(logs)
}

// judge applies a t-test to the logarithms of the ratios of the pairs. The hypothesis is that the
// true ratio lies within minEffect of 1.
func (f *family) judge(logs []float64) verdict {
	n := len(logs)
	if n < minPairs {
		return tooFew
	}
	mean, own, df := average(logs), variance(logs), float64(n-1)
	pooled := own
	if f.variance > 0 {
		pooled = max(own, (df*own+priorDF*f.variance)/(df+priorDF))
		df += priorDF
	}
	deviation := math.Sqrt(pooled / float64(n))
	level := f.share(n)
	certain := chance(math.Abs(mean)-math.Log1p(minEffect), deviation, df) < level*falseRuns/float64(max(f.comparisons, 1))
	switch {
	case certain && mean > 0:
		return faster
	case certain:
		return slower
	case chance(math.Log1p(alikeWithin)-math.Abs(mean), deviation, df) < 2*level*wrongAlike:
		return alike
	}
	return undecided
}

// share returns the part of the level for a cell with so many pairs. A cell that may be measured
// again until it has a verdict has several chances of a false one. The parts of all looks add up to
// 1 (alpha spending). The first look, at which most cells end, gets half.
func (f *family) share(pairs int) float64 {
	switch {
	case f.looks < 2:
		return 1
	case pairs <= f.pairs:
		return 0.5
	}
	return 0.5 / float64(f.looks-1)
}

// Undecided reports for each cell whether some rate is undecided relative to the cell's first
// engine.
func (r *Run) Undecided() []bool {
	r.assessed()
	out := make([]bool, len(r.Cells))
	for i, c := range r.Cells {
		for _, s := range c.Series[min(1, len(c.Series)):] {
			if _, ok := logRatios(s, c.Series[0], measure.OpsPerS); ok && c.judge(s, c.Series[0], measure.OpsPerS) == undecided {
				out[i] = true
			}
		}
	}
	return out
}

// chance returns the probability, by Student's t-distribution, that a mean exceeds the hypothesis
// by beyond although the hypothesis holds.
func chance(beyond, deviation, df float64) float64 {
	switch {
	case beyond <= 0:
		return 1
	case deviation == 0:
		return 0
	}
	return 2 * (1 - stats.TDist{V: df}.CDF(beyond/deviation))
}

// logRatios returns the logarithm of each pair's ratio.
func logRatios(s, against Series, metric string) ([]float64, bool) {
	v, ok := s.values(metric)
	a, both := against.values(metric)
	if !ok || !both || len(v) != len(a) {
		return nil, false
	}
	logs := make([]float64, len(v))
	for i := range v {
		logs[i] = math.Log(v[i] / a[i])
	}
	return logs, !slices.ContainsFunc(logs, func(x float64) bool { return math.IsNaN(x) || math.IsInf(x, 0) })
}

func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// variance returns the unbiased estimate, or 0 for fewer than two values.
func variance(values []float64) float64 {
	if len(values) < 2 {
		return 0
	}
	mean, sum := average(values), 0.0
	for _, v := range values {
		sum += (v - mean) * (v - mean)
	}
	return sum / float64(len(values)-1)
}
