// SPDX-License-Identifier: MIT

// Package report holds the result schema of all benchmark suites and its forms: the JSON document,
// the Go benchmark format that benchstat reads, the table, and the summary in words.
package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Document summarizes the run as a result file. It has the ratios of every engine to the cell's
// first one, and of ringside's engines to all others.
func (r *Run) Document() Document {
	r.assess()
	d := Document{
		Schema: SchemaVersion, Host: r.Host, Results: []Result{}, Ratios: []Ratio{}, Skipped: r.Skipped, Notes: r.Notes,
	}
	for _, c := range r.Cells {
		for i, s := range c.Series {
			d.Results = append(d.Results, c.result(s))
			for j, against := range c.Series {
				if i != j && (j == 0 || strings.HasPrefix(s.Engine, "ringside")) && i != 0 {
					d.Ratios = append(d.Ratios, c.ratios(s, against)...)
				}
			}
		}
	}
	return d
}

func (c Cell) result(s Series) Result {
	r := Result{
		Suite: c.Suite, Workload: c.Workload, Params: c.Params, Engine: s.Engine,
		Metrics: map[string]measure.Summary{}, Samples: map[string][]float64{},
	}
	if len(s.Samples) == 0 {
		return r
	}
	for metric := range s.Samples[0].Metrics {
		values, ok := s.values(metric)
		if !ok {
			continue
		}
		r.Metrics[metric] = measure.Summarize(values)
		// Turns are many: only the metrics that are compared keep their values, in five digits.
		if !s.inTurns() || slices.Contains([]string{measure.OpsPerS, measure.CPUUsPerOp, measure.P50Us, measure.P99Us}, metric) {
			r.Samples[metric] = values
			if s.inTurns() {
				r.Samples[metric] = rounded(values)
			}
		}
	}
	if s.inTurns() {
		for _, sample := range s.Samples {
			for len(r.Starts) <= sample.Start {
				r.Starts = append(r.Starts, 0)
			}
			r.Starts[sample.Start]++
		}
	}
	return r
}

// inTurns reports whether some start has several samples.
func (s Series) inTurns() bool {
	return len(s.Samples) > 1 && s.Samples[len(s.Samples)-1].Start < len(s.Samples)-1
}

func rounded(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i], _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64) // it was just formatted
	}
	return out
}

func (c Cell) ratios(s, against Series) []Ratio {
	var out []Ratio
	for _, col := range columns {
		if col.use&inFiles == 0 {
			continue
		}
		if i, ok := c.interval(s, against, col.metric); ok {
			out = append(out, Ratio{
				Suite: c.Suite, Workload: c.Workload, Params: c.Params, Engine: s.Engine, Against: against.Engine, Metric: col.metric,
				Ratio: i.Ratio, Low: i.Low, High: i.High,
			})
		}
	}
	return out
}

// WriteJSON writes the run as a result file.
func (r *Run) WriteJSON(w io.Writer) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(r.Document()); err != nil {
		return err
	}
	// The samples of a metric are one line; otherwise the file has thousands of lines.
	_, err := w.Write(numberList.ReplaceAllFunc(b.Bytes(), func(list []byte) []byte {
		return bytes.ReplaceAll(bytes.Join(bytes.Fields(list), nil), []byte(","), []byte(", "))
	}))
	return err
}

// numberList matches a list of numbers on several lines. No string contains a line break.
var numberList = regexp.MustCompile(`\[\n[-+.,0-9eE\s]*\]`)

// ReadDocument reads a result file of this version or of an older one.
func ReadDocument(r io.Reader) (*Document, error) {
	decoder := json.NewDecoder(r)
	decoder.DisallowUnknownFields()
	var d Document
	err := decoder.Decode(&d)
	// A newer version may have fields that this version does not know.
	if d.Schema > SchemaVersion {
		err = fmt.Errorf("written by a newer ringside: schema %d, this one reads up to %d", d.Schema, SchemaVersion)
	}
	for i := 0; i < len(d.Results) && err == nil; i++ {
		err = d.Results[i].check()
	}
	// The first files had no schema number, but described a machine.
	if err == nil && d.Schema < 1 && len(d.Results) == 0 && d.Host.Kernel == "" {
		err = errors.New("it has no results")
	}
	if err != nil {
		return nil, fmt.Errorf("this is not a result of 'ringside bench --json FILE': %w", readError(err))
	}
	return &d, nil
}

// readError describes an error of the decoder in plain words.
func readError(err error) error {
	if kind, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("unexpected JSON %s at byte %d", kind.Value, kind.Offset)
	}
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("it is empty")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("it is cut off")
	}
	return err
}

// check returns an error if a result of a file is not valid.
func (r Result) check() error {
	if rowParams[r.Suite] == nil || r.Workload == "" || r.Engine == "" {
		return fmt.Errorf("a result of suite %q, workload %q, engine %q", r.Suite, r.Workload, r.Engine)
	}
	return nil
}
