// SPDX-License-Identifier: MIT

package report

import (
	"math"
	"slices"

	"github.com/aclements/go-moremath/stats"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

const (
	// minStarts is the least number of starts for a verdict.
	minStarts = 4
	// nullWidth is the greatest difference that a comparison of an engine with itself may show
	// (results/notes/bench.md). A claim means that the true ratio differs from 1 by more.
	nullWidth = 0.01
	// alikeWithin is the greatest difference between two engines that are called alike.
	alikeWithin = 0.05
	// falseClaims is the expected share of false claims among the claims of a run.
	falseClaims = 0.05
	// priorDF is the weight, in degrees of freedom, of the other cells of a workload in the estimate
	// of a cell's noise.
	priorDF = 4
	// A comparison ends early if its distance from no difference is sureErrors standard errors, or if it is
	// alike by alikeErrors. No start is taken to deviate less than leastDeviation, since four starts may
	// agree by chance: workloads deviate by 0.05 to 0.2. So what ends early adds no false claims.
	sureErrors, alikeErrors = 6, 3
	leastDeviation          = 0.15
	// trimmedPairs and trimmedStarts are the shares of values that the means of a start's pairs and of
	// the starts leave out at each end.
	trimmedPairs, trimmedStarts = 0.2, 0.1
)

// Interval is the ratio of two engines with its interval: in 95 of 100 runs the interval holds the
// true ratio. With fewer than four starts Low and High are 0.
//
// The estimate is a mean of logarithms in two steps. The pairs of one start of both engines give the
// mean without the fifth at each end: on a busy machine a few turns lose their processor, and the
// rest are normal enough. The means of the starts give the estimate. Their variance includes what a
// process keeps for its life (the layout of its memory, its threads, the places of its sockets), which
// the pairs of one start cannot show. Few starts estimate a variance badly, so it is moderated: the
// median variance of the workload's other cells counts like four more starts where it is greater, and
// never makes an interval shorter than the pairs themselves do. Quantiles are those of Student's t.
// From ten starts on, as in cells that are measured in rounds, the mean of the starts leaves out a tenth
// at each end as well, with a winsorised variance (Yuen 1974).
type Interval struct {
	Ratio float64 `json:"ratio"`
	Low   float64 `json:"low"`
	High  float64 `json:"high"`
	// Starts are the ratios of the starts, in their order.
	Starts []float64 `json:"-"`

	chance float64 // of such a ratio if the true one lies within nullWidth of 1
}

// known reports whether there is a ratio, and bounded whether it has an interval.
func (i Interval) known() bool   { return i.Ratio > 0 }
func (i Interval) bounded() bool { return i.High > 0 }

// alike reports whether any difference is smaller than alikeWithin.
func (i Interval) alike() bool { return i.Low >= 1-alikeWithin && i.High <= 1+alikeWithin }

// noise is the median variance of the starts of the comparisons of a workload, by suite, workload and
// metric.
type noise map[[3]string]float64

// noiseOf estimates the noise of the run's workloads.
func noiseOf(cells []Cell) noise {
	all := map[[3]string][]float64{}
	for _, c := range cells {
		for _, s := range c.Series[min(1, len(c.Series)):] {
			for _, metric := range []string{measure.OpsPerS, measure.CPUUsPerOp, measure.P99Us} {
				if e, ok := estimateOf(s, c.base(s.Engine), metric); ok && len(e.values) > 1 {
					all[c.noiseKey(metric)] = append(all[c.noiseKey(metric)], e.variance)
				}
			}
		}
	}
	n := noise{}
	for key, variances := range all {
		if len(variances) > 1 { // a cell does not support itself
			n[key] = measure.Summarize(variances).Median
		}
	}
	return n
}

func (c Cell) noiseKey(metric string) [3]string { return [3]string{c.Suite, c.Workload, metric} }

// interval compares a metric of two series of the cell. It returns false if they cannot be compared.
func (c Cell) interval(s, against Series, metric string) (Interval, bool) {
	e, ok := estimateOf(s, against, metric)
	if !ok {
		return Interval{}, false
	}
	return e.interval(c.noise[c.noiseKey(metric)]), true
}

// Sure reports whether the rates of all engines are decided so clearly that more samples decide nothing.
func (c Cell) Sure() bool {
	for _, s := range c.Series[min(1, len(c.Series)):] {
		if e, ok := estimateOf(s, c.base(s.Engine), measure.OpsPerS); !ok || !e.sure() {
			return false
		}
	}
	return len(c.Series) > 1
}

func (e estimate) sure() bool {
	if len(e.values) < minStarts {
		return false
	}
	deviation := max(math.Sqrt(max(e.variance, e.within)), leastDeviation) / math.Sqrt(e.kept)
	away := math.Abs(e.mean)
	return away-sureErrors*deviation > math.Log1p(nullWidth) || away+alikeErrors*deviation < math.Log1p(alikeWithin)
}

// estimate is the mean logarithm of a ratio and what is known about its error.
type estimate struct {
	values []float64 // of each start
	mean   float64
	// variance is that of a value, and kept is the number of values in the mean. within is the part
	// of the variance that the pairs of a start explain.
	variance, kept, within float64
}

// estimateOf returns the estimate of a metric's ratio. It returns false without samples of both.
func estimateOf(s, against Series, metric string) (estimate, bool) {
	mine, theirs := s.logs(metric), against.logs(metric)
	var e estimate
	for start := range max(len(mine), len(theirs)) {
		if start >= len(mine) || start >= len(theirs) || len(mine[start]) == 0 || len(theirs[start]) == 0 {
			continue
		}
		x, y := mine[start], theirs[start]
		if len(x) != len(y) { // One of them was measured in rounds.
			a, _, _ := trimmed(x, trimmedPairs)
			b, _, _ := trimmed(y, trimmedPairs)
			e.values = append(e.values, a-b)
			continue
		}
		d := make([]float64, len(x))
		for i := range d {
			d[i] = x[i] - y[i]
		}
		m, v, kept := trimmed(d, trimmedPairs)
		e.values = append(e.values, m)
		if len(d) > 1 {
			e.within += v / kept
		}
	}
	n := float64(len(e.values))
	if n == 0 {
		return e, false
	}
	e.within /= n
	e.mean, e.variance, e.kept = trimmed(e.values, trimmedStarts)
	return e, true
}

// interval returns the interval, with the noise of the workload's other cells.
func (e estimate) interval(prior float64) Interval {
	df, v := e.kept-1, e.variance
	if prior > 0 {
		v = max(v, (df*v+priorDF*prior)/(df+priorDF))
		df += priorDF
	}
	deviation := math.Sqrt(max(v, e.within) / e.kept)
	i := Interval{Ratio: math.Exp(e.mean), chance: 1}
	for _, v := range e.values {
		i.Starts = append(i.Starts, math.Exp(v))
	}
	if len(e.values) < minStarts || df < 1 {
		return i // without an interval
	}
	half := quantile(df) * deviation
	i.Low, i.High = math.Exp(e.mean-half), math.Exp(e.mean+half)
	i.chance = chance(math.Abs(e.mean)-math.Log1p(nullWidth), deviation, df)
	return i
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

// quantile returns the 97.5 % quantile of Student's t-distribution.
func quantile(df float64) float64 {
	low, high := 1.9, 13.0
	for range 40 {
		if mid := (low + high) / 2; (stats.TDist{V: df}).CDF(mid) < 0.975 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}

// trimmed returns the trimmed mean, the variance of a kept value by the winsorised variance of all, and
// how many values were kept.
func trimmed(values []float64, share float64) (m, v, kept float64) {
	s := slices.Sorted(slices.Values(values))
	cut := int(share * float64(len(s)))
	m = mean(s[cut : len(s)-cut])
	n, h := float64(len(s)), float64(len(s)-2*cut)
	for i := range cut {
		s[i], s[len(s)-1-i] = s[cut], s[len(s)-1-cut]
	}
	if h < 2 {
		return m, 0, h
	}
	return m, variance(s) * (n - 1) / (h - 1), h
}

func mean(values []float64) float64 {
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
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return sum / float64(len(values)-1)
}

// logs returns the logarithms of a metric by start. Values that are not positive have none.
func (s Series) logs(metric string) (out [][]float64) {
	for _, sample := range s.Samples {
		v, ok := sample.Metrics[metric]
		if !ok || !(v > 0) || math.IsInf(v, 0) {
			continue
		}
		for len(out) <= sample.Start {
			out = append(out, nil)
		}
		out[sample.Start] = append(out[sample.Start], math.Log(v))
	}
	return out
}

// discoveries returns which chances are small enough for a claim, so that at most falseClaims of the
// claims are expected to be false (Benjamini and Hochberg 1995). If no difference is true, that is the
// chance of any claim.
func discoveries(chances []float64) []bool {
	sorted := slices.Sorted(slices.Values(chances))
	limit := -1.0
	for i, p := range sorted {
		if p <= falseClaims*float64(i+1)/float64(len(sorted)) {
			limit = p
		}
	}
	out := make([]bool, len(chances))
	for i, p := range chances {
		out[i] = p <= limit
	}
	return out
}
