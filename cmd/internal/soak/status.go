// SPDX-License-Identifier: MIT

// Package soak exercises all packages of ringside at the same time, for as long as wanted, and
// checks each byte. It runs seeded scenarios of files, rings, sockets and watched descriptors,
// servers with callbacks and with net/http, and SQLite databases. It works in rounds. At the end of
// each round everything is closed. Then no descriptor and no goroutine may remain, and memory may
// not grow from round to round.
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
	Round       int              `json:"round"`      // the current round, from 1
	Operations  map[string]int64 `json:"operations"` // finished operations of each row
	Errors      int64            `json:"errors"`
	Descriptors int              `json:"descriptors"`
	Goroutines  int              `json:"goroutines"`
	Resident    int64            `json:"residentBytes"`
	Heap        int64            `json:"heapInUseBytes"`
	InFlight    int64            `json:"inFlight"` // unfinished operations of rings, requests and transactions
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

// short formats a count with three or four digits.
func short(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprint(n)
	case n < 10_000_000:
		return fmt.Sprintf("%.4gk", float64(n)/1e3)
	}
	return fmt.Sprintf("%.4gM", float64(n)/1e6)
}

// Left counts the resources that remain after everything was closed at the end of a round and
// garbage was collected.
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
	Rounds      int              `json:"rounds"` // completed rounds
	Interrupted bool             `json:"interrupted"`
	Operations  map[string]int64 `json:"operations"`
	Uses        []string         `json:"uses"`     // backends, or fallbacks and their reasons
	Problems    []string         `json:"problems"` // the first ones; none means success
	Before      Left             `json:"before"`
	Left        []Left           `json:"left"` // at the end of each round
	Peak        Left             `json:"peak"` // the maximum of each under load
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

// These are the rows that can be soaked.
const (
	Files   = "files"
	Sockets = "sockets"
	Watch   = "watch"
	SQLite  = "sqlite"
)

// Rows are all of them, in the order of lines.
var Rows = []string{Files, Sockets, Watch, SQLite}

// DiskMiB limits the size of a run's files at any time, in MiB. A row stays far below its share.
const DiskMiB = 256

// Options are the options of a run.
type Options struct {
	// For is the duration of the run. Rounds take at most half a minute.
	For time.Duration
	// Seed determines the seeds of scenarios and all other choices.
	Seed uint64
	// Dir is the directory in which a temporary directory for all files is created.
	Dir string
	// Rows are some of [Rows]; nil means all.
	Rows []string
	// Replay, if not 0, runs only the scenario of this seed, repeatedly. Rows must then have one
	// member, which is not SQLite.
	Replay uint64
	// Every is the interval of calls of Line.
	Every time.Duration
	Line  func(Status)

	// round overrides the length of rounds. spoil may change data in transit. extra runs in each
	// round. Tests use them to seed faults.
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
			return fmt.Errorf("--rows %q: must be %s or %s", row, strings.Join(Rows[:len(Rows)-1], ", "), Rows[len(Rows)-1])
		}
	}
	if o.Replay != 0 && (len(o.Rows) != 1 || o.Rows[0] == SQLite) {
		return fmt.Errorf("--replay %d: needs the row of the scenario: add --rows %s, %s or %s", o.Replay, Files, Sockets, Watch)
	}
	return nil
}

// has reports whether a row is soaked.
func (o *Options) has(row string) bool { return len(o.Rows) == 0 || slices.Contains(o.Rows, row) }

// roundLength allows at least twelve rounds, so that growth can be seen. A round takes between a
// second and half a minute.
func (o *Options) roundLength() time.Duration {
	if o.round > 0 {
		return o.round
	}
	return max(min(o.For/12, 30*time.Second), time.Second)
}

// fewest is the minimum number of rounds, after the warm-up, for a verdict on growth.
const fewest = 6

// Growth compares memory between rounds. The first sixth of the rounds is the warm-up.
type Growth struct {
	What string `json:"what"`
	// Judged is false for a run with too few rounds.
	Judged bool `json:"judged"`
	Grown  bool `json:"grown"`
	// First and Last are the most bytes at the end of a round in the first and in the last third.
	// Limit is the maximum for Last: a quarter more than First, plus some MiB.
	First int64 `json:"firstThird"`
	Last  int64 `json:"lastThird"`
	Limit int64 `json:"limit"`
}

// judgeGrowth judges the bytes at the ends of rounds. A growth of a quarter plus allowed bytes is
// accepted.
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

// String returns the result as a sentence.
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
