// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/ab"
	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Layout says how the cells of one suite are arranged for reading.
type Layout struct {
	// Section is the title under which a cell stands; neighbours with the same title share a table.
	Section func(Cell) string
	// Row names one engine's row, Point the cell within its section, for sentences.
	Row   func(c Cell, engine string) string
	Point func(Cell) string
	// Draw, if there is one, may return what makes the tables of a cell's section in the place of one
	// of columns, or nil.
	Draw func(Cell) DrawFunc
	// Without are metrics that the tables leave out, because others say the same.
	Without []string
	// Subject is the engine that the sentences are about; empty stands for ringside.
	Subject string
	// Ratios are metrics whose ratio to the cell's first engine stands beside them. Where there are
	// any, no rates are compared in columns at the end, and cells of many engines stand apart.
	Ratios []string
	// Summary, if not nil, says what the run found as a whole, in place of the sentences for each
	// section.
	Summary func(*Run) []string
}

// DrawFunc makes the tables of the cells of one section.
type DrawFunc func(cells []Cell) []*table

// FileLayout arranges the suite "file": a table for each workload, storage, state of the cache and
// number of goroutines.
var FileLayout = Layout{
	Without: []string{measure.NsPerOp}, // The rate says it, and the tables are wide.
	Section: func(c Cell) string {
		words := []string{c.Workload}
		if c.Params["storage"] == "fast" {
			words = append(words, "fast device")
		}
		if cache, ok := c.Params["cache"]; ok {
			words = append(words, cacheWords(cache))
		}
		if n, ok := c.Params["goroutines"]; ok {
			words = append(words, plural(n, "goroutine"))
		}
		return strings.Join(words, ", ")
	},
	Row: func(c Cell, engine string) string {
		if block, ok := c.Params["block"]; ok {
			engine += fmt.Sprintf("_%v", block)
		}
		for _, p := range furtherParams(c) {
			engine += fmt.Sprintf("_%v", c.Params[p])
		}
		return engine
	},
	Point: func(c Cell) string {
		var words []string
		if block, ok := c.Params["block"]; ok {
			words = append(words, pointBytes(block))
		}
		for _, p := range furtherParams(c) {
			words = append(words, fmt.Sprintf("%s %v", p, c.Params[p]))
		}
		return strings.Join(words, " ")
	},
}

// furtherParams are the names of those that only some workloads have.
func furtherParams(c Cell) []string {
	common := []string{"block", "cache", "device", "goroutines", "storage"}
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.Params)), func(name string) bool { return slices.Contains(common, name) })
}

// RingLayout arranges the suite "ring": a table for each setup of the ring.
var RingLayout = Layout{
	Section: func(c Cell) string { return fmt.Sprintf("%s, %s", c.Workload, ringWords(c.Params["ring"])) },
	Row:     func(c Cell, engine string) string { return fmt.Sprintf("%s_%v", engine, c.Params["batch"]) },
	Point:   func(c Cell) string { return fmt.Sprintf("batch %v", c.Params["batch"]) },
}

func ringWords(ring any) string {
	switch ring {
	case "default":
		return "default ring"
	case "defer":
		return "single issuer with deferred task work"
	}
	return fmt.Sprint(ring)
}

func cacheWords(cache any) string {
	switch cache {
	case "hot":
		return "page cache hot"
	case "direct":
		return "O_DIRECT"
	case "cold":
		return "page cache cold"
	}
	return fmt.Sprint(cache)
}

func plural(n any, noun string) string {
	if s := fmt.Sprint(n); s != "1" {
		return s + " " + noun + "s"
	}
	return "1 " + noun
}

func pointBytes(block any) string {
	switch n := block.(type) {
	case int:
		return FormatBytes(int64(n))
	case float64:
		return FormatBytes(int64(n))
	}
	return fmt.Sprint(block)
}

// column is one metric: in tables under title, which is empty for a metric that has no column, and in
// benchmark lines with unit.
type column struct {
	title, unit string
	metric      string
	format      func(float64) string
}

// columns begin with testing's own units, which benchmark tables of Go have.
var columns = []column{
	{"ns/op", "ns/op", measure.NsPerOp, formatNumber},
	{"MB/s", "MB/s", measure.MBPerS, formatNumber},
	{"B/op", "B/op", measure.BytesPerOp, formatCount},
	{"allocs/op", "allocs/op", measure.AllocsPerOp, formatCount},
	{"ops/s", "op/s", measure.OpsPerS, formatNumber},
	{"CPU µs/op", "cpu-us/op", measure.CPUUsPerOp, formatNumber},
	{"p50 µs", "p50-us", measure.P50Us, formatNumber},
	{"", "p90-us", ab.MetricPercentile(90), nil},
	{"p99 µs", "p99-us", measure.P99Us, formatNumber},
	{"max µs", "max-us", measure.MaxUs, formatNumber},
	{"threads", "threads", measure.Threads, formatWhole},
	{"computed/s", "units/s", measure.UnitsPerS, formatNumber},
	{"device", "device-B/B", DeviceShare, formatPercent},
	{"enters/op", "enters/op", EntersPerOp, formatCount},
	{"floor ns/op", "floor-ns/op", measure.FloorNsPerOp, formatNumber},
	{"syscalls/op", "syscalls/op", SyscallsPerOp, formatCount},
	{"CPU µs/s", "cpu-us/s", IdleCPU, formatNumber},
	{"wakes/s", "wakes/s", WakesPerS, formatNumber},
	{"heap B/conn", "heap-B/conn", HeapPerConn, formatWhole},
	{"RSS B/conn", "rss-B/conn", RSSPerConn, formatWhole},
	{"", "mean-us", ab.MetricMean, nil},
	{"syncs shared", "syncs-shared", SyncsShared, formatPercent},
}

// joinAnd joins words as a sentence does.
func joinAnd(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
