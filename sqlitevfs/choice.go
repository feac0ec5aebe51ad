// SPDX-License-Identifier: MIT

package sqlitevfs

import "time"

// choice says which way to sync is faster for those who want to at the same time:
// by themselves or together. It measures both, one after the other, by how many
// syncs there are in a second: the time that each takes would leave out the
// callers that wait for a processor because threads are stuck in syncs. The zero
// value syncs alone. A group's mutex guards it.
type choice struct {
	together bool

	plain, group meter
	won          bool          // syncing together did, the last time
	settled      bool          // the way that is used won, and is kept until again
	again        time.Time     // when to measure anew
	keep         time.Duration // how long that is put off
	missing      int           // rounds in a row to which too few came
	rounds       int           // since they sync together; the first is not typical
}

// meter is a rate.
type meter struct {
	n     int
	start time.Time
	took  time.Duration
}

// add takes down n more, from the first call on.
func (m *meter) add(n int, now time.Time) {
	if m.start.IsZero() {
		m.start = now
		return
	}
	m.n += n
	m.took = now.Sub(m.start)
}

func (m *meter) rate() float64 { return float64(m.n) / max(m.took.Seconds(), 1e-9) }

// enough says whether the rate means something with so many callers.
func (m *meter) enough(callers int) bool { return m.n >= max(sample, rounds*callers) }

// alone takes down a sync of a file by itself, when so many were there. A rate
// is that of a crowd: it begins with one, and is forgotten when it took long.
func (c *choice) alone(present int, now time.Time) {
	if c.together || c.plain.start.IsZero() && present < few {
		return
	}
	if c.plain.add(1, now); c.plain.took > maxSample {
		c.plain = meter{}
	}
}

// shared takes down n that were done together.
func (c *choice) shared(n int, now time.Time) {
	if c.rounds++; c.together && c.rounds > 1 {
		c.group.add(n, now)
	}
	c.missing = 0
}

// tryTogether says whether to try it, with so many callers.
func (c *choice) tryTogether(callers int, now time.Time) bool {
	if now.Before(c.again) {
		c.plain = meter{} // what counts is measured just before
		return false
	}
	return c.plain.enough(callers)
}

// begin goes over to syncing together.
func (c *choice) begin() {
	c.together, c.settled, c.group = true, false, meter{}
	c.missing, c.rounds = 0, 0
}

// judge compares, when both have been measured.
func (c *choice) judge(callers int, now time.Time) {
	switch {
	case !c.together:
	case c.settled && now.After(c.again):
		c.together, c.plain = false, meter{}
	case c.settled || !c.group.enough(callers):
	default:
		won := c.group.rate() >= advantage*c.plain.rate()
		if won != c.won {
			c.won, c.keep = won, 0
		}
		c.keep = min(max(2*c.keep, minRecheck), maxRecheck)
		if c.group.rate() > clear*c.plain.rate() {
			c.keep = max(c.keep, clearRecheck)
		}
		c.together, c.settled = won, won
		c.again = now.Add(c.keep)
		c.plain = meter{}
	}
}

// missed counts rounds to which too few came.
func (c *choice) missed() {
	if c.missing++; c.missing >= misses {
		c.together, c.plain = false, meter{}
	}
}
