// SPDX-License-Identifier: MIT

package report

import (
	"fmt"
	"strings"

	"github.com/ringside-io/ringside/cmd/internal/measure"
)

// Engines of the suite "net" that the summary is about.
const (
	netStd    = "std"
	netConn   = "ringside-conn"
	netPlain  = "ringside-plain"
	netEvent  = "ringside-event"
	netParked = "ringside-event-parked"
	netEpoll  = "ringside-event-epoll"
	netSQPoll = "ringside-event-sqpoll"
	netC      = "liburing"
	netServe  = "ringside-serve"
)

// netSummary says in words what a run of the suite "net" found. All words follow from its numbers.
func netSummary(r *Run) []string {
	var out []string
	for _, sec := range r.sections(Layout{Section: netSection}) {
		for _, engine := range []string{netConn, netEvent, netServe} {
			if line := sec.against(engine, netStd); line != "" {
				out = append(out, fmt.Sprintf("%s: %s", sec.title, line))
			}
		}
		if line := sec.against(netServe, "nginx"); line != "" {
			out = append(out, fmt.Sprintf("%s: %s", sec.title, line))
		}
	}
	echoes := section{}
	for _, c := range r.Cells {
		if _, one := c.Params["gomaxprocs"]; c.Workload == "echo" && !one {
			echoes.cells = append(echoes.cells, c)
		}
	}
	return append(out, echoes.conclusions()...)
}

// against says how an engine compares to another in all cells of the section.
func (sec section) against(engine, base string) string {
	t := tallyOf(sec.cells, engine, base, netPoint)
	points := t.points
	if len(points[tooFew]) > 0 {
		return fmt.Sprintf("too few pairs (%d) to tell %s from %s; use --pairs %d or more", t.pairs, engine, base, minPairs)
	}
	var parts []string
	for _, p := range []struct {
		v     verdict
		words string
	}{{faster, "faster at "}, {slower, "slower at "}, {alike, "no difference at "}, {undecided, "not decided at "}} {
		if len(points[p.v]) > 0 {
			parts = append(parts, p.words+joinAnd(points[p.v])+sec.noun())
		}
	}
	for _, m := range []struct{ words, metric string }{
		{"CPU per operation", measure.CPUUsPerOp}, {"p99", measure.P99Us}, {"heap and stacks", HeapPerConn}, {"RSS", RSSPerConn},
	} {
		parts = append(parts, rangeWords(m.words, sec.ratios(engine, base, m.metric))...)
	}
	parts = append(parts, sec.ranges(engine, IdleCPU, "CPU", "µs/s")...)
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("%s vs %s: %s", engine, base, strings.Join(parts, "; "))
}

// noun is what points that are numbers count.
func (sec section) noun() string {
	if _, ok := sec.cells[0].Params["handler"]; ok {
		return ""
	}
	return " connections"
}

// both returns two engines of a cell, if it has them.
func (c Cell) both(engine, base string) (s, other Series, ok bool) {
	s, ok1 := c.find(engine)
	other, ok2 := c.find(base)
	return s, other, ok1 && ok2
}

// ratios are those of a metric of two engines, of each cell that has both.
func (sec section) ratios(engine, base, metric string) []measure.Summary {
	var out []measure.Summary
	for _, c := range sec.cells {
		s, other, ok := c.both(engine, base)
		if !ok {
			continue
		}
		if ratio, ok := s.Ratio(other, metric); ok {
			out = append(out, ratio)
		}
	}
	return out
}

// ranges tells the smallest and largest median of an engine's metric.
func (sec section) ranges(engine, metric, what, unit string) []string {
	low, high, found := 0.0, 0.0, false
	for _, c := range sec.cells {
		s, ok := c.find(engine)
		if !ok {
			continue
		}
		sum, ok := s.Summary(metric)
		if !ok {
			continue
		}
		if !found {
			low, high = sum.Median, sum.Median
		}
		low, high, found = min(low, sum.Median), max(high, sum.Median), true
	}
	if !found {
		return nil
	}
	text := formatCount(low)
	if formatCount(high) != text {
		text += " to " + formatCount(high)
	}
	if unit != "" {
		unit = " " + unit
	}
	return []string{fmt.Sprintf("%s %s%s", what, text, unit)}
}

// conclusions are drawn from echoes of all sizes.
func (sec section) conclusions() []string {
	var out []string
	for _, q := range []struct{ engine, base, about string }{
		{netConn, netPlain, "what io_uring gives the Conn, beside a control with plain calls; the rest of its gain is scheduling"},
		{netEvent, netC, "the callback server beside C"},
		{netEvent, "netpoll", "the callback server beside netpoll"},
		{netEvent, netEpoll, "what io_uring gives the callback server, beside the same callbacks on epoll"},
		{netEvent, netParked, "what a thread of its own gives"},
		{netSQPoll, netEvent, "what SQPOLL gives"},
	} {
		rates := sec.ratios(q.engine, q.base, measure.OpsPerS)
		if len(rates) == 0 {
			continue
		}
		parts := rangeWords("rate", rates)
		parts = append(parts, rangeWords("CPU per operation", sec.ratios(q.engine, q.base, measure.CPUUsPerOp))...)
		for _, e := range []string{q.engine, q.base} {
			parts = append(parts, sec.ranges(e, SyscallsPerOp, "system calls of "+e, "per operation")...)
		}
		out = append(out, fmt.Sprintf("%s vs %s (%s): %s", q.engine, q.base, q.about, strings.Join(parts, "; ")))
	}
	if advice := sec.advice(); advice != "" {
		out = append(out, advice)
	}
	return out
}

// advice says where which engine is worth it.
func (sec section) advice() string {
	var parts []string
	for _, e := range []struct{ engine, words string }{{netConn, "goroutines and Conn"}, {netEvent, "callbacks"}} {
		var pays, not []string
		for _, c := range sec.cells {
			s, other, ok := c.both(e.engine, netStd)
			if !ok || len(s.Samples) < minPairs {
				continue
			}
			switch d := (Duel{Cell: c}); {
			case !d.judge(s, other):
			case d.Verdict == Better || d.Saves:
				pays = append(pays, sec.pointOf(c))
			case d.Verdict != Unclear:
				not = append(not, sec.pointOf(c))
			}
		}
		switch {
		case len(pays) > 0 && len(not) == 0:
			parts = append(parts, e.words+" pay everywhere")
		case len(pays) > 0:
			parts = append(parts, fmt.Sprintf("%s pay except at %s", e.words, joinAnd(not)))
		case len(not) > 0:
			parts = append(parts, e.words+" pay nowhere: stay with net")
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return "advice for echoes, by rate and CPU time against std: " + strings.Join(parts, "; ")
}

// pointOf names a cell among those of all sizes.
func (section) pointOf(c Cell) string {
	return fmt.Sprintf("%s of %s", plural(c.Params["connections"], "connection"), pointBytes(c.Params["size"]))
}

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
	if d, ok := c.Params["direction"]; ok {
		words = append(words, fmt.Sprint(d))
	}
	if n, ok := c.Params["messages"]; ok {
		words = append(words, fmt.Sprintf("%v at a time", n))
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
