// SPDX-License-Identifier: MIT

package report

import (
	"errors"
	"fmt"
)

// ErrNoSamples is returned for a result file that does not have the samples of its rounds.
var ErrNoSamples = errors.New("the file has no samples of its rounds, from which tables and pictures are made: it was written by an older ringside (schema 2); measure again, or use 'ringside compare', which reads it as it is")

// Run returns the run that the file was written from, so that it can be shown again. What a sample
// counted besides its metrics is gone. A file without samples leads to [ErrNoSamples].
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
	var out []Sample
	for metric, values := range r.Samples {
		if out == nil {
			out = make([]Sample, len(values))
			for i := range out {
				out[i] = Sample{Iterations: 1, Metrics: map[string]float64{}}
			}
		}
		if len(values) != len(out) {
			return nil, fmt.Errorf("%s has %d samples of %s, and %d of others", r.key(), len(values), metric, len(out))
		}
		for i, v := range values {
			out[i].Metrics[metric] = v
		}
	}
	return out, nil
}
