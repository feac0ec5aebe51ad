// SPDX-License-Identifier: MIT

// Package soak keeps all that ringside is made of at work at the same time, for as long as wanted,
// and judges each byte: seeded scenarios of files, rings, sockets and watched descriptors, servers
// with callbacks and with net/http, and SQLite databases. It works in rounds. At the end of each
// everything is closed, and nothing may be left: no descriptor, no goroutine, no memory that grows
// from round to round.
package soak

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Status is the state of a run at one moment.
type Status struct {
	Seconds     float64          `json:"seconds"`    // since the beginning
	Round       int              `json:"round"`      // that has begun, from 1 on
	Operations  map[string]int64 `json:"operations"` // that have ended, of each row
	Errors      int64            `json:"errors"`
	Descriptors int              `json:"descriptors"`
	Goroutines  int              `json:"goroutines"`
	Resident    int64            `json:"residentBytes"`
	Heap        int64            `json:"heapInUseBytes"`
	InFlight    int64            `json:"inFlight"` // operations of rings, requests and transactions that have begun and not ended
}

// String returns the status as a line.
func (s Status) String() string {
	var b strings.Builder
	d := time.Duration(s.Seconds) * time.Second
	fmt.Fprintf(&b, "%02d:%02d:%02d", int(d.Hours()), int(d.Minutes())%60, int(d.Seconds())%60)
	for _, row := range Rows {
		if n, ok := s.Operations[row]; ok {
			fmt.Fprintf(&b, "  %s %s", row, short(n))
		}
	}
	fmt.Fprintf(&b, "  errors %d  fds %d  goroutines %d  RSS %d MiB  heap %d MiB  in flight %d",
		s.Errors, s.Descriptors, s.Goroutines, s.Resident>>20, s.Heap>>20, s.InFlight)
	return b.String()
}

// short writes a count with three or four digits.
func short(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 10_000_000:
		return fmt.Sprintf("%.4gk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.4gM", float64(n)/1e6)
}

// Left counts what remained when everything had been closed at the end of a round and garbage had been
// collected.
type Left struct {
	Descriptors int   `json:"descriptors"`
	Goroutines  int   `json:"goroutines"`
	Resident    int64 `json:"residentBytes"`
	Heap        int64 `json:"heapInUseBytes"`
}

// Summary is the result of a run.
type Summary struct {
	Seed        uint64           `json:"seed"`
	Seconds     float64          `json:"seconds"`
	Rounds      int              `json:"rounds"` // that came to their end
	Interrupted bool             `json:"interrupted"`
	Operations  map[string]int64 `json:"operations"`
	Uses        []string         `json:"uses"`     // backends, or fallbacks and their reasons
	Problems    []string         `json:"problems"` // the first ones; none: all is well
	Before      Left             `json:"before"`
	Left        []Left           `json:"left"` // at the end of each round
	Peak        Left             `json:"peak"` // the most of each that was seen under load
	Memory      []Growth         `json:"growth"`
}

// Failed reports whether the run found a failure.
func (s *Summary) Failed() bool { return len(s.Problems) > 0 }

// Text returns the summary in lines for a reader.
func (s *Summary) Text() string {
	var b strings.Builder
	total := int64(0)
	for _, n := range s.Operations {
		total += n
	}
	end := "all is well"
	switch {
	case s.Failed():
		end = "FAILED"
	case s.Interrupted:
		end = "interrupted, and all was well until then"
	}
	fmt.Fprintf(&b, "%s: %d operations in %.0f s, %d rounds, seed %d\n", end, total, s.Seconds, s.Rounds, s.Seed)
	for _, row := range Rows {
		if n, ok := s.Operations[row]; ok {
			fmt.Fprintf(&b, "  %-8s %d operations\n", row, n)
		}
	}
	for _, use := range s.Uses {
		fmt.Fprintf(&b, "  uses     %s\n", use)
	}
	s.writeLeft(&b)
	for _, g := range s.Memory {
		fmt.Fprintf(&b, "  %s\n", g)
	}
	for _, p := range s.Problems {
		fmt.Fprintf(&b, "problem: %s\n", p)
	}
	return b.String()
}

func (s *Summary) writeLeft(b *strings.Builder) {
	line := func(when string, l Left) {
		fmt.Fprintf(b, "  %-16s fds %d, goroutines %d, RSS %.1f MiB, heap %.1f MiB\n",
			when, l.Descriptors, l.Goroutines, mib(l.Resident), mib(l.Heap))
	}
	line("before", s.Before)
	if n := len(s.Left); n > 0 {
		line("after round 1", s.Left[0])
		line(fmt.Sprintf("after round %d", n), s.Left[n-1])
	}
	line("most under load", s.Peak)
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// The rows that can be soaked.
const (
	Files   = "files"
	Sockets = "sockets"
	Watch   = "watch"
	SQLite  = "sqlite"
)

// Rows are all of them, in the order of lines.
var Rows = []string{Files, Sockets, Watch, SQLite}

// DiskMiB bounds the files of a run at any time, in MiB. A row stays far below its part.
const DiskMiB = 256

// Options are the options of a run.
type Options struct {
	// For is how long, in rounds of at most half a minute.
	For time.Duration
	// Seed is where the seeds of scenarios and of all other choices come from.
	Seed uint64
	// Dir is where a directory for all files is made, which is removed in the end.
	Dir string
	// Rows are some of [Rows]; nil means all.
	Rows []string
	// Replay runs the scenario of this seed again and again, and nothing else, unless it is 0. Rows
	// must have one member then, which is not SQLite.
	Replay uint64
	// Every is the time between calls of Line.
	Every time.Duration
	Line  func(Status)

	// round overrides the length of rounds, spoil may change data in transit, and extra runs in
	// each round: tests seed faults.
	round time.Duration
	spoil func(row string, p []byte)
	extra func()
}

// Check returns an error that names the first option that is not valid.
func (o *Options) Check() error {
	if o.For <= 0 {
		return fmt.Errorf("--for %v: must be positive", o.For)
	}
	for _, row := range o.Rows {
		if !slices.Contains(Rows, row) {
			return fmt.Errorf("--rows %s: there are %s", row, strings.Join(Rows, ", "))
		}
	}
	if o.Replay != 0 && (len(o.Rows) != 1 || o.Rows[0] == SQLite) {
		return fmt.Errorf("--replay needs the row of that scenario: --rows %s, %s or %s", Files, Sockets, Watch)
	}
	return nil
}

// has reports whether a row is soaked.
func (o *Options) has(row string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, row) }

// roundLength leaves room for twelve rounds, so that growth can be seen, but none is shorter than a
// second or longer than half a minute.
func (o *Options) roundLength() time.Duration {
	if o.round > 0 {
		return o.round
	}
	return max(min(o.For/12, 30*time.Second), time.Second)
}

// fewest is how many rounds it takes, after the warm-up, to speak of growth.
const fewest = 6

// Growth compares memory over rounds, of which the first sixth warms up.
type Growth struct {
	What string `json:"what"`
	// Judged is false for a run with too few rounds.
	Judged bool `json:"judged"`
	Grown  bool `json:"grown"`
	// First and Last are the most bytes at the end of a round of the first and the last third, Limit
	// is what Last may be: a quarter more than First, and some MiB.
	First int64 `json:"firstThird"`
	Last  int64 `json:"lastThird"`
	Limit int64 `json:"limit"`
}

// judgeGrowth judges bytes at the ends of rounds; some more than a quarter are allowed.
func judgeGrowth(what string, bytes []int64, allowed int64) Growth {
	g := Growth{What: what}
	if len(bytes) > 0 {
		bytes = bytes[max(1, len(bytes)/6):]
	}
	if len(bytes) < fewest {
		return g
	}
	third := len(bytes) / 3
	g.Judged = true
	g.First, g.Last = slices.Max(bytes[:third]), slices.Max(bytes[len(bytes)-third:])
	g.Limit = g.First + g.First/4 + allowed
	g.Grown = g.Last > g.Limit
	return g
}

// String returns the finding as a sentence.
func (g Growth) String() string {
	if !g.Judged {
		return fmt.Sprintf("%s: too few rounds to judge its growth", g.What)
	}
	is := "has not grown"
	if g.Grown {
		is = "HAS GROWN"
	}
	return fmt.Sprintf("%s %s: at most %.1f MiB in the first third, %.1f MiB in the last (limit %.1f)",
		g.What, is, mib(g.First), mib(g.Last), mib(g.Limit))
}
