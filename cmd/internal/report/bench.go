// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// benchUnits are the columns of a benchmark line: testing's own units first.
var benchUnits = []struct{ metric, unit string }{
	{measure.NsPerOp, "ns/op"},
	{measure.MBPerS, "MB/s"},
	{measure.BytesPerOp, "B/op"},
	{measure.AllocsPerOp, "allocs/op"},
	{measure.OpsPerS, "op/s"},
	{measure.CPUUsPerOp, "cpu-us/op"},
	{measure.P50Us, "p50-us"},
	{ab.MetricPercentile(90), "p90-us"},
	{measure.P99Us, "p99-us"},
	{measure.MaxUs, "max-us"},
	{measure.Threads, "threads"},
	{measure.UnitsPerS, "units/s"},
	{DeviceShare, "device-B/B"},
	{EntersPerOp, "enters/op"},
	{measure.FloorNsPerOp, "floor-ns/op"},
	{SyscallsPerOp, "syscalls/op"},
	{IdleCPU, "cpu-us/s"},
	{WakesPerS, "wakes/s"},
	{HeapPerConn, "heap-B/conn"},
	{RSSPerConn, "rss-B/conn"},
	{ab.MetricMean, "mean-us"},
	{SyncsShared, "syncs-shared"},
}

// WriteBench writes one line per sample in the Go benchmark format. The engine is a part of the
// name, so that `benchstat -col /engine` puts engines side by side.
func (r *Run) WriteBench(w io.Writer) error {
	out := benchfmt.NewWriter(w)
	// Without a word benchstat takes every unknown unit for a cost.
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
				for _, u := range benchUnits {
					if v, ok := sample.Metrics[u.metric]; ok {
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

// benchName is the benchmark's name without the word "Benchmark". The device is a matter of the
// configuration: in a name it would keep two machines from being compared.
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
