// SPDX-License-Identifier: MIT

package report

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// WriteBench writes one line per sample in the Go benchmark format. The engine is a part of the
// name, so that `benchstat -col /engine` puts engines side by side.
func (r *Run) WriteBench(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	// Without this line benchstat treats every unknown unit as a cost.
	units := []string{"op/s"}
	if anyHas(r.Cells, measure.UnitsPerS) {
		units = append(units, "units/s")
	}
	for _, unit := range units {
		if err := out.Write(&benchfmt.UnitMetadata{
			UnitMetadataKey: benchfmt.UnitMetadataKey{Unit: unit, Key: "better"}, OrigUnit: unit, Value: "higher",
		}); err != nil {
			return err
		}
	}
	config := r.Host.benchConfig()
	for _, c := range r.Cells {
		for _, s := range c.Series {
			for _, sample := range s.Samples {
				res := &benchfmt.Result{
					Config: config,
					Name:   benchfmt.Name(c.benchName(s.Engine, r.Host.GOMAXPROCS)),
					Iters:  int(sample.Iterations),
				}
				for _, u := range columns {
					if v, ok := sample.Metrics[u.metric]; ok && u.unit != "" {
						res.Values = append(res.Values, benchfmt.Value{Value: v, Unit: u.unit})
					}
				}
				if err := out.Write(res); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// benchName returns the benchmark's name without the word "Benchmark". The device is not in the
// name, so that two machines can be compared.
func (c Cell) benchName(engine string, procs int) string {
	var b strings.Builder
	b.WriteString(strings.ToUpper(c.Workload[:1]) + c.Workload[1:])
	for _, key := range slices.Sorted(maps.Keys(c.Params)) {
		if key != "device" {
			fmt.Fprintf(&b, "/%s=%v", key, c.Params[key])
		}
	}
	fmt.Fprintf(&b, "/engine=%s", engine)
	if procs > 1 {
		fmt.Fprintf(&b, "-%d", procs)
	}
	return b.String()
}

func (h Host) benchConfig() []benchfmt.Config {
	var out []benchfmt.Config
	for _, kv := range [][2]string{
		{"goos", h.OS},
		{"goarch", h.Arch},
		{"pkg", "github.com/ringside-io/ringside/cmd/ringside"},
		{"cpu", h.CPU},
		{"kernel", h.Kernel},
		{"device", h.Device},
		{"filesystem", h.Filesystem},
		{"mount", h.Mount},
		{"go", h.Go},
		{"ringside", h.Ringside},
		{"commit", h.Commit},
		{"backend", h.Backend},
		{"peers", strings.Join(h.Peers, "; ")},
		{"seed", fmt.Sprint(h.Seed)},
	} {
		if kv[1] != "" {
			out = append(out, benchfmt.Config{Key: kv[0], Value: []byte(kv[1]), File: true})
		}
	}
	return out
}

// Sample is the result of one engine in one round.
type Sample struct {
	// Iterations is the number of operations.
	Iterations int64
	// Metrics are values by the names of package measure. All samples of a series have the same
	// metrics.
	Metrics map[string]float64
	// Start is the number of the start of the engines after which it was measured. A round has a
	// start of its own.
	Start int
}

// Series is all samples of one engine in one cell. The i-th samples of all series of a cell form a
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
	// Series begins with the baseline.
	Series []Series

	noise noise // of the run; nil before the run is assessed
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

// Find returns the series of an engine.
func (c Cell) Find(engine string) (Series, bool) {
	i := slices.IndexFunc(c.Series, func(s Series) bool { return s.Engine == engine })
	if i < 0 {
		return Series{}, false
	}
	return c.Series[i], true
}

// Suites names the suites of the run, in the order of its cells.
func (r *Run) Suites() []string {
	var out []string
	for _, c := range r.Cells {
		if !slices.Contains(out, c.Suite) {
			out = append(out, c.Suite)
		}
	}
	return out
}

// Suite returns the part of the run that belongs to one suite.
func (r *Run) Suite(name string) *Run {
	r.assess()
	part := &Run{Host: r.Host}
	for _, c := range r.Cells {
		if c.Suite == name {
			part.Cells = append(part.Cells, c)
		}
	}
	for _, s := range r.Skipped {
		if s.Suite == name {
			part.Skipped = append(part.Skipped, s)
		}
	}
	return part
}

// Add appends the results of another suite on the same machine. It keeps the known circumstances of
// r and takes unknown ones from other.
func (r *Run) Add(other *Run) {
	r.Cells = append(r.Cells, other.Cells...)
	r.Skipped = append(r.Skipped, other.Skipped...)
	for _, n := range other.Notes {
		if !slices.Contains(r.Notes, n) {
			r.Notes = append(r.Notes, n)
		}
	}
	if r.Host.Time == "" {
		r.Host = other.Host
		return
	}
	h, o := &r.Host, other.Host
	h.Device, h.Filesystem, h.Mount = cmp.Or(h.Device, o.Device), cmp.Or(h.Filesystem, o.Filesystem), cmp.Or(h.Mount, o.Mount)
	switch {
	case h.FileBytes == 0 && o.FileBytes > 0:
		h.Verified = o.Verified
	case h.FileBytes == 0 || o.FileBytes > 0:
		h.Verified = h.Verified && o.Verified
	}
	h.FileBytes = cmp.Or(h.FileBytes, o.FileBytes)
	h.Storages = append(h.Storages, o.Storages...)
	if h.Backend == "" {
		h.Backend, h.Reason = o.Backend, o.Reason
	}
	for _, p := range o.Peers {
		if !slices.Contains(h.Peers, p) {
			h.Peers = append(h.Peers, p)
		}
	}
	h.Stolen = max(h.Stolen, o.Stolen)
	h.Seed, h.DurationMs = cmp.Or(h.Seed, o.Seed), cmp.Or(h.DurationMs, o.DurationMs)
}

// ErrNoSamples is returned for a result file without the samples of its rounds.
var ErrNoSamples = errors.New("the file has no samples of its rounds, from which tables and pictures are made: it was written by an older ringside (schema 2); measure again, or use 'ringside compare', which reads it as it is")

// Run returns the run from which the file was written, so that it can be shown again. Values of a
// sample other than its metrics are lost. A file without samples leads to [ErrNoSamples].
func (d *Document) Run() (*Run, error) {
	r := &Run{Host: d.Host, Skipped: d.Skipped, Notes: d.Notes}
	index := map[string]int{}
	for _, res := range d.Results {
		c := Cell{Suite: res.Suite, Workload: res.Workload, Params: res.Params}
		key := c.Suite + c.benchName("", 1)
		i, ok := index[key]
		if !ok {
			i = len(r.Cells)
			index[key] = i
			r.Cells = append(r.Cells, c)
		}
		samples, err := res.restore()
		if err != nil {
			return nil, err
		}
		r.Cells[i].Series = append(r.Cells[i].Series, Series{Engine: res.Engine, Samples: samples})
	}
	return r, nil
}

func (r Result) restore() ([]Sample, error) {
	if len(r.Metrics) > 0 && len(r.Samples) == 0 {
		return nil, ErrNoSamples
	}
	n := 0
	for _, values := range r.Samples {
		n = len(values)
	}
	out := make([]Sample, n)
	for i := range out {
		out[i] = Sample{Iterations: 1, Metrics: map[string]float64{}, Start: i}
	}
	i := 0
	for start, count := range r.Starts {
		for range count {
			if i < n {
				out[i].Start = start
			}
			i++
		}
	}
	if len(r.Starts) > 0 && i != n {
		return nil, fmt.Errorf("%s has %d samples, and its starts have %d", r.key(), n, i)
	}
	for metric, values := range r.Samples {
		if len(values) != n {
			return nil, fmt.Errorf("%s has %d samples of %s, and %d of others", r.key(), len(values), metric, n)
		}
		for i, v := range values {
			out[i].Metrics[metric] = v
		}
	}
	for metric, sum := range r.Metrics { // of turns, only the median was kept
		for i := range out {
			if _, ok := r.Samples[metric]; !ok {
				out[i].Metrics[metric] = sum.Median
			}
		}
	}
	return out, nil
}
