// SPDX-License-Identifier: MIT

package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// columns are the compared values.
var columns = []struct {
	name   string
	format string
	of     func(*result) float64
}{
	{"requests/s", "%.0f", (*result).rate},
	{"p50 ms", "%.2f", func(r *result) float64 { return milliseconds(r.P50) }},
	{"p99 ms", "%.2f", func(r *result) float64 { return milliseconds(r.P99) }},
	{"CPU µs", "%.0f", func(r *result) float64 { return float64(r.CPU.Microseconds()) / max(1, float64(r.Total)) }},
	{"threads", "%.0f", func(r *result) float64 { return float64(r.Threads) }},
}

// compare measures the default VFS and another in turn, so that a disturbance of the
// machine affects both, and prints medians, smallest and largest values, and their
// ratios pair by pair.
func compare(ctx context.Context, o options, out io.Writer) error {
	names := [2]string{"default", o.vfs}
	var results [2][]*result
	for pair := range o.pairs {
		for i, name := range names {
			o.vfs = name
			r, err := measure(ctx, o)
			if err == nil {
				err = r.failed()
			}
			if err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			results[i] = append(results[i], r)
			fmt.Fprintf(out, "%d/%d %-14s %6.0f requests/s\n", pair+1, o.pairs, name, r.rate())
		}
	}
	fmt.Fprintf(out, "\n%d tenants, %d connections, %d %% reads, connections by %s; medians of %d (min–max)\n",
		o.load.tenants, o.load.conns, o.load.reads, results[0][0].Backend, o.pairs)
	return table(out, names, results)
}

func table(out io.Writer, names [2]string, results [2][]*result) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "VFS")
	for _, c := range columns {
		fmt.Fprint(w, "\t", c.name)
	}
	fmt.Fprintln(w)
	for i, name := range names {
		fmt.Fprint(w, name)
		for _, c := range columns {
			values := make([]float64, len(results[i]))
			for j, r := range results[i] {
				values[j] = c.of(r)
			}
			fmt.Fprint(w, "\t", spread(c.format, values))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprint(w, "ratio")
	for _, c := range columns {
		values := make([]float64, len(results[0]))
		for j := range values {
			values[j] = c.of(results[1][j]) / c.of(results[0][j])
		}
		fmt.Fprint(w, "\t", spread("%.2f", values))
	}
	fmt.Fprintln(w)
	return w.Flush()
}

// spread formats the median of values, and the smallest and the largest.
func spread(format string, values []float64) string {
	values = slices.Sorted(slices.Values(values))
	n := len(values)
	median := (values[(n-1)/2] + values[n/2]) / 2
	return fmt.Sprintf(format+" ("+format+"–"+format+")", median, values[0], values[n-1])
}
