// SPDX-License-Identifier: MIT

package report

import (
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Sample is what one round of one engine gave.
type Sample struct {
	// Iterations is the number of operations.
	Iterations int64
	// Metrics are values by the names of package measure. All samples of a series have the same.
	Metrics map[string]float64
}

// Series are all samples of one engine in one cell; the i-th samples of a cell's series form a
// pair.
type Series struct {
	Engine  string
	Samples []Sample
}

// Cell is one point of a grid, measured with each engine.
type Cell struct {
	Suite    string
	Workload string
	Params   Params
	// Series begin with the engine that the others are compared to.
	Series []Series
}

// Run is a finished benchmark run with all its samples.
type Run struct {
	Host    Host
	Cells   []Cell
	Skipped []Skip
	// Notes are sentences that a reader of the tables should know.
	Notes []string
}

// values returns the metric of each sample, or false if the series has no such metric.
func (s Series) values(metric string) ([]float64, bool) {
	values := make([]float64, 0, len(s.Samples))
	for _, sample := range s.Samples {
		v, ok := sample.Metrics[metric]
		if !ok {
			return nil, false
		}
		values = append(values, v)
	}
	return values, len(values) > 0
}

// Summary returns median, minimum and maximum of the metric over all samples, or false if the
// series has no such metric.
func (s Series) Summary(metric string) (measure.Summary, bool) {
	values, ok := s.values(metric)
	if !ok {
		return measure.Summary{}, false
	}
	return measure.Summarize(values), true
}

// Ratio returns the metric of s divided by that of against, pair by pair, or false if that cannot
// be computed.
func (s Series) Ratio(against Series, metric string) (measure.Summary, bool) {
	v, ok := s.values(metric)
	if !ok {
		return measure.Summary{}, false
	}
	a, ok := against.values(metric)
	if !ok {
		return measure.Summary{}, false
	}
	return measure.Ratio(v, a)
}
