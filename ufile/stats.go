// SPDX-License-Identifier: MIT

package ufile

import "github.com/ringside-io/ringside/reactor"

// Stats count which path the positional reads and writes took. A call that took
// several, because a part of what it asked for was cached, counts in each.
type Stats struct {
	Cached uint64 `json:"cached"` // reads served by the page cache without blocking
	Plain  uint64 `json:"plain"`  // plain system calls
	Ring   uint64 `json:"ring"`   // operations through a ring
	// Reactor are the rings' own counters.
	Reactor reactor.Stats `json:"reactor"`
}

func (s *Stats) add(t Stats) {
	s.Cached += t.Cached
	s.Plain += t.Plain
	s.Ring += t.Ring
}

// Stats returns the counters of all files that the system has opened. One of which
// only a single read was made is counted when it is closed.
func (s *System) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	sum := s.done
	for f := range s.files {
		sum.add(f.stats())
	}
	for _, r := range []*reactor.Reactor{s.rings.Load(), s.broken} {
		if r != nil {
			sum.Reactor = sum.Reactor.Plus(r.Stats())
		}
	}
	return sum
}

// Stats returns the counters of one file; its Reactor part is zero, because rings
// are shared.
func (f *File) Stats() Stats { return f.stats() }

func (f *state) stats() Stats {
	return Stats{Cached: f.cached.Load(), Plain: f.plain.Load(), Ring: f.ringed.Load()}
}
