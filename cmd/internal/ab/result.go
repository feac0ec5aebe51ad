// SPDX-License-Identifier: MIT

package ab

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Phases of a request, in the order of ab's table. Connecting lasts until the connection stands, which
// for a kept one takes no time; processing from then until the answer is there, waiting until its
// first byte is; total is connecting and processing.
var Phases = []string{"connect", "processing", "waiting", "total"}

// Percents are the percentiles that are told.
var Percents = []int{50, 66, 75, 80, 90, 95, 98, 99, 100}

// Times describe how long a phase took, in milliseconds. Those of the program are whole ones, except
// for the standard deviation.
type Times struct {
	Min, Mean, SD, Median, Max float64
}

// Result is what came out.
type Result struct {
	// Requests is how many were answered, Failed how many not as they should.
	Requests, Failed int
	// Elapsed is how long all of it took.
	Elapsed time.Duration
	// Phases are the times of [Phases].
	Phases [4]Times
	// Percentiles are those of the total, one of each of [Percents], in milliseconds.
	Percentiles []float64
}

// MetricPhase names the metric of a phase in result files: of connect, for instance, and one of min,
// mean, sd, median and max.
func MetricPhase(phase, what string) string { return phase + "_" + what + "_ms" }

// MetricPercentile names the metric of a percentile in result files. The 99th and the 100th are
// those of package measure.
func MetricPercentile(percent int) string {
	if percent == 100 {
		return "max_us"
	}
	return fmt.Sprintf("p%d_us", percent)
}

// MetricMean names the time that a request took on average, as it follows from the rate.
const MetricMean = "mean_us"

// Metrics returns the result under the names of result files.
func (r Result) Metrics(connections int) map[string]float64 {
	m := map[string]float64{
		MetricMean: float64(r.Elapsed.Nanoseconds()) / 1e3 * float64(connections) / float64(r.Requests),
	}
	for i, phase := range Phases {
		t := r.Phases[i]
		for what, v := range map[string]float64{"min": t.Min, "mean": t.Mean, "sd": t.SD, "median": t.Median, "max": t.Max} {
			m[MetricPhase(phase, what)] = v
		}
	}
	for i, p := range Percents {
		m[MetricPercentile(p)] = r.Percentiles[i] * 1e3
	}
	return m
}

// describe computes times as ab does.
func describe(spent []time.Duration) Times {
	d := slices.Sorted(slices.Values(spent))
	n := len(d)
	sum := 0.0
	for _, v := range d {
		sum += millis(v)
	}
	t := Times{Min: millis(d[0]), Mean: sum / float64(n), Median: millis(d[n/2]), Max: millis(d[n-1])}
	if n%2 == 0 {
		t.Median = (millis(d[n/2-1]) + millis(d[n/2])) / 2
	}
	squares := 0.0
	for _, v := range d {
		squares += (millis(v) - t.Mean) * (millis(v) - t.Mean)
	}
	if n > 1 {
		t.SD = math.Sqrt(squares / float64(n-1))
	}
	return t
}

// percentiles are those of [Percents].
func percentiles(spent []time.Duration) []float64 {
	d := slices.Sorted(slices.Values(spent))
	var out []float64
	for _, p := range Percents {
		out = append(out, millis(d[min(len(d)*p/100, len(d)-1)]))
	}
	return out
}

func millis(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e6 }
