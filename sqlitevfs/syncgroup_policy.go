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
	callers      map[any]bool  // that synced by themselves during the measurement
	beside       int           // of these syncs, at the same time as another
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

// enough reports whether the rate is of so many rounds of so many callers.
func (m *meter) enough(rounds, callers int) bool { return m.n >= max(sample, rounds*callers) }

// alone takes down a sync that a caller made by itself, when so many were there. A rate is that
// of callers that sync side by side: it begins with two, and is forgotten when it took
// long.
func (c *choice) alone(caller any, present int, now time.Time) {
	if c.together || c.plain.start.IsZero() && present < 2 {
		return
	}
	if c.callers == nil {
		c.callers = make(map[any]bool)
	}
	c.callers[caller] = true
	if present >= 2 {
		c.beside++
	}
	if c.plain.add(1, now); c.plain.took > maxSample {
		c.forget()
	}
}

// forget begins the measurement of plain syncs anew.
func (c *choice) forget() {
	c.plain, c.beside = meter{}, 0
	clear(c.callers)
}

// crowd returns how many callers sync side by side, 0 if these are few. It does not go
// by how many are in a sync at a time: with GOMAXPROCS=2 that is hardly ever more than
// two, because the others wait for a processor.
func (c *choice) crowd() int {
	if len(c.callers) < few || c.beside*apart < c.plain.n {
		return 0
	}
	return len(c.callers)
}

// shared takes down n that were done together.
func (c *choice) shared(n int, now time.Time) {
	if c.rounds++; c.together && c.rounds > 1 {
		c.group.add(n, now)
	}
	c.missing = 0
}

// tryTogether reports whether to try it.
func (c *choice) tryTogether(now time.Time) bool {
	if now.Before(c.again) {
		c.forget() // what counts is measured just before
		return false
	}
	n := c.crowd()
	return n > 0 && c.plain.enough(rounds, n)
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
		c.together = false
		c.forget()
	case c.settled || !c.group.enough(rounds, callers):
	default:
		won := c.group.rate() >= advantage*c.plain.rate()
		if !won && 2*c.group.rate() > c.plain.rate() && !c.group.enough(defeat, callers) {
			return // one slow round of few is no defeat
		}
		if won != c.won {
			c.won, c.keep = won, 0
		}
		c.keep = min(max(2*c.keep, minRecheck), maxRecheck)
		if c.group.rate() > clearly*c.plain.rate() {
			c.keep = max(c.keep, clearRecheck)
		}
		c.together, c.settled = won, won
		c.again = now.Add(c.keep)
		c.forget()
	}
}

// missed counts rounds to which too few came. After some, they are not tried again for
// a while: the callers sync one after the other.
func (c *choice) missed(now time.Time) {
	if c.missing++; c.missing < misses {
		return
	}
	c.together = false
	c.won = false
	c.keep = min(max(2*c.keep, minRecheck), maxRecheck)
	c.again = now.Add(c.keep)
	c.forget()
}
