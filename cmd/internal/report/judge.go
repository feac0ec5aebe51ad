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
	undecided verdict = iota // the spread leaves it open
	alike                    // any difference is smaller than alikeWithin
	faster
	slower
	tooFew
)

const (
	// minPairs is how many pairs a verdict needs.
	minPairs = 4
	// minEffect is the smallest difference that is reported: a verdict says that the true ratio
	// differs from 1 by more than this.
	minEffect = 0.03
	// alikeWithin is the difference that two engines without a difference have at most.
	alikeWithin = 0.1
	// falseRuns bounds the share of whole runs that report any difference where there is none.
	falseRuns = 0.01
	// wrongAlike is the probability of calling engines alike that are not. No decision
	// rests on it, so it is not divided by the number of cells.
	wrongAlike = 0.05
	// priorDF is how many degrees of freedom the other cells' spread counts for in a cell's own.
	priorDF = 4
)

// family is the set of all comparisons of a run. They are judged together: a hundred cells judged
// one by one at 1 % would report a difference by chance in most runs.
type family struct {
	// comparisons is their number; each is judged at falseRuns/comparisons (Bonferroni).
	comparisons int
	// looks is how often a cell may have been judged, pairs how many pairs its first judgement had.
	looks, pairs int
	// variance is the median variance of the logarithms of a cell's ratios. Five pairs estimate
	// their own variance badly; the other cells correct an estimate that is too small by chance.
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
					f.comparisons += 2 // rate and processor time
				}
			}
		}
	}
	if len(variances) > 0 {
		f.variance = measure.Summarize(variances).Median
	}
}

// assessed assesses the run unless it, or the run that it is a part of, has been assessed.
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

// share returns the part of its level at which a cell with so many pairs is judged. A cell that may
// be measured again until it has a verdict has several chances of a false one. The parts of all its
// looks add up to 1 (alpha spending): half for the first look, where most cells end.
func (f *family) share(pairs int) float64 {
	switch {
	case f.looks < 2:
		return 1
	case pairs <= f.pairs:
		return 0.5
	}
	return 0.5 / float64(f.looks-1)
}

// Undecided reports for each cell whether its rounds leave open how a rate compares to that of the
// cell's first engine.
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

// chance returns the probability of a mean that exceeds the hypothesis by beyond if the hypothesis
// holds, by Student's t-distribution.
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

// variance returns the unbiased estimate, 0 for fewer than two values.
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
