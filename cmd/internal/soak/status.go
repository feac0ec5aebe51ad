// SPDX-License-Identifier: MIT

package soak

import (
	"fmt"
	"strings"
	"time"
)

// Status is what is true at a moment of a run.
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

// Left is what there was when everything had been closed at the end of a round, and garbage had been
// collected.
type Left struct {
	Descriptors int   `json:"descriptors"`
	Goroutines  int   `json:"goroutines"`
	Resident    int64 `json:"residentBytes"`
	Heap        int64 `json:"heapInUseBytes"`
}

// Summary is what came of a run.
type Summary struct {
	Seed        uint64           `json:"seed"`
	Seconds     float64          `json:"seconds"`
	Rounds      int              `json:"rounds"` // that came to their end
	Interrupted bool             `json:"interrupted"`
	Operations  map[string]int64 `json:"operations"`
	Uses        []string         `json:"uses"`     // what was soaked, or which fallback and why
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
