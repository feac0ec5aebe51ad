// SPDX-License-Identifier: MIT

package ab

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// output is what ab prints.
type output struct {
	Result
	phases  int // that were found
	elapsed float64
	most    float64 // of the total, in milliseconds
}

// parse reads what ab prints, and its file of percentiles, which has microseconds.
func parse(out, exact []byte) (Result, error) {
	var o output
	var err error
	for line := range strings.Lines(string(out)) {
		if err = o.line(strings.TrimSpace(line)); err != nil {
			break
		}
	}
	if err == nil && (o.phases != len(Phases) || o.elapsed <= 0 || o.Requests <= 0) {
		err = fmt.Errorf("%d phases, %d requests in %v s", o.phases, o.Requests, o.elapsed)
	}
	if err == nil {
		o.Elapsed = time.Duration(o.elapsed * float64(time.Second))
		o.Percentiles, err = parsePercentiles(exact, o.most)
	}
	if err != nil {
		return Result{}, fmt.Errorf("ab: unreadable answer: %w", err)
	}
	return o.Result, nil
}

// line takes up one line.
func (o *output) line(line string) (err error) {
	name, rest, _ := strings.Cut(line, ":")
	if longest, ok := strings.CutPrefix(line, "100% "); ok {
		name, rest = "100%", longest
	}
	words := strings.Fields(rest)
	if len(words) == 0 {
		return nil
	}
	switch name = strings.ToLower(name); name {
	case "time taken for tests":
		o.elapsed, err = parseNumber(words[0])
	case "100%":
		o.most, err = parseNumber(words[0])
	case "complete requests":
		o.Requests, err = strconv.Atoi(words[0])
	case "failed requests", "non-2xx responses", "write errors":
		var n int
		n, err = strconv.Atoi(words[0])
		o.Failed += n
	default:
		if i := slices.Index(Phases, name); i >= 0 {
			o.phases++
			o.Phases[i], err = parseTimes(words)
		}
	}
	return err
}

// parseNumber reads a time in whatever unit, which ends some day.
func parseNumber(s string) (float64, error) {
	v, err := strconv.ParseFloat(s, 64)
	if err == nil && !(v >= 0 && v <= 1e9) { // also what is not a number
		err = fmt.Errorf("%q is no time", s)
	}
	return v, err
}

// parseTimes reads a line of the connection times.
func parseTimes(words []string) (t Times, err error) {
	if len(words) != 5 {
		return t, fmt.Errorf("%d columns", len(words))
	}
	for i, v := range []*float64{&t.Min, &t.Mean, &t.SD, &t.Median, &t.Max} {
		if *v, err = parseNumber(words[i]); err != nil {
			return t, err
		}
	}
	return t, nil
}

// parsePercentiles reads the file that has all but the last.
func parsePercentiles(b []byte, most float64) ([]float64, error) {
	table := csv.NewReader(bytes.NewReader(b))
	table.FieldsPerRecord = 2
	rows, err := table.ReadAll()
	if err != nil {
		return nil, err
	}
	var out []float64
	for _, p := range Percents[:len(Percents)-1] {
		i := slices.IndexFunc(rows, func(row []string) bool { return row[0] == strconv.Itoa(p) })
		if i < 0 {
			return nil, fmt.Errorf("no percentile %d", p)
		}
		v, err := parseNumber(rows[i][1])
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return append(out, max(most, out[len(out)-1])), nil
}
