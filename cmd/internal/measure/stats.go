// SPDX-License-Identifier: MIT

package measure

import (
	"slices"
)

// Summary describes the values of one metric from several rounds.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// Summarize returns median, minimum and maximum. The median of an even number of values is the mean
// of the middle two. It does not change values, of which there must be at least one.
func Summarize(values []float64) Summary {
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	median := v[mid]
	if len(v)%2 == 0 {
		median = v[mid-1] + (v[mid]-v[mid-1])/2
	}
	return Summary{Median: median, Min: v[0], Max: v[len(v)-1]}
}

// Ratio summarizes values divided by against, pair by pair: a temporary disturbance of the machine
// affects both halves of a pair. It returns false if the lengths differ, if there are no pairs or
// if a divisor is zero.
func Ratio(values, against []float64) (Summary, bool) {
	if len(values) == 0 || len(values) != len(against) {
		return Summary{}, false
	}
	ratios := make([]float64, len(values))
	for i, v := range values {
		if against[i] == 0 {
			return Summary{}, false
		}
		ratios[i] = v / against[i]
	}
	return Summarize(ratios), true
}
