// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Metrics of the suite "net" alone.
const (
	// EntersPerOp is how many calls of io_uring_enter(2) an engine needed for one operation,
	// SyscallsPerOp how many system calls of any kind.
	EntersPerOp   = "enters_per_op"
	SyscallsPerOp = "syscalls_per_op"
	// IdleCPU is the processor time in microseconds that a server used in a second without load,
	// WakesPerS how often one of its threads was woken.
	IdleCPU   = "idle_cpu_us_per_s"
	WakesPerS = "wakes_per_s"
	// HeapPerConn is what an idle connection takes of heap and stacks, RSSPerConn of the memory of
	// the process, in bytes.
	HeapPerConn = "heap_bytes_per_conn"
	RSSPerConn  = "rss_bytes_per_conn"
)

// NetLayout arranges the suite "net": a table for each workload and what it sends.
var NetLayout = Layout{
	Without: []string{measure.NsPerOp, measure.BytesPerOp}, // Rate and allocations say it.
	Section: netSection,
	Row: func(c Cell, engine string) string {
		if h, ok := c.Params["handler"]; ok {
			return engine + "_" + strings.ReplaceAll(fmt.Sprint(h), " ", "_")
		}
		return fmt.Sprintf("%s_%v", engine, c.Params["connections"])
	},
	Point:   netPoint,
	Ratios:  []string{measure.OpsPerS, measure.CPUUsPerOp, measure.P99Us, HeapPerConn, RSSPerConn},
	Subject: "ringside-event",
	Summary: netSummary,
}

// netSection titles a table by all that is the same in it.
func netSection(c Cell) string {
	words := []string{c.Workload}
	if size, ok := c.Params["size"]; ok {
		words = append(words, pointBytes(size))
	}
	if _, ok := c.Params["handler"]; ok {
		words = append(words, plural(c.Params["connections"], "connection"))
	}
	switch client, ok := c.Params["client"]; {
	case client == "own":
		words = append(words, "own load generator")
	case ok:
		words = append(words, fmt.Sprint(client))
	}
	if procs, ok := c.Params["gomaxprocs"]; ok {
		words = append(words, fmt.Sprintf("GOMAXPROCS %v", procs))
	}
	return strings.Join(words, ", ")
}

// netPoint names a cell in a list of its section.
func netPoint(c Cell) string {
	if h, ok := c.Params["handler"]; ok {
		return fmt.Sprint(h)
	}
	return fmt.Sprint(c.Params["connections"])
}
