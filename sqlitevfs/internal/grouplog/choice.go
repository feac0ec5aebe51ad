// SPDX-License-Identifier: MIT

package grouplog

import (
	"sync"
	"sync/atomic"
	"time"
)

// These are the limits of a choice. docs/grouplog.md has the measurements behind them.
const (
	// minSample is the least number of measured commits. minTurns is the least number per
	// concurrent commit.
	minSample = 64
	minTurns  = 4
	// advantage is the ratio by which the rate with the log must be higher. A commit by the log takes up to a
	// third more processor time if it is alone.
	advantage = 1.1
	// hopeless is the multiple of the expected time after which a trial ends.
	hopeless = 2
	// maxGap is the longest time between two commits of a measurement.
	maxGap = 20 * time.Millisecond
	// minKeep and maxKeep limit how long a result is kept before it is measured again. The time
	// doubles with each confirmation.
	minKeep = 100 * time.Millisecond
	maxKeep = time.Minute
)

// Ways chooses between logs and syncs of WALs for all logs of a file system. With a log per
// directory no single log has enough commits to measure. The zero value is ready for use.
type Ways struct {
	going  atomic.Int64 // commits in progress
	choice choice       // for commits that are mostly alone in their log
}

// choice decides whether commits that may not gain from the log use it. It measures the commits per
// second of both ways, one after the other, and keeps the faster one for a while. The zero value
// begins with the log.
type choice struct {
	mu      sync.Mutex
	syncs   bool // the current way: a sync of the WAL instead of the log
	trial   bool // the current way is being compared with the previous one
	n, peak int  // commits of the measurement, and the most that were concurrent
	start   time.Time
	last    time.Time
	before  float64 // rate of the previous way
	recheck time.Time
	keep    time.Duration
}

// logs reports whether the next commit uses the log.
func (c *choice) logs() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.syncs
}

// add counts a finished commit. going is the number of commits in progress.
func (c *choice) add(logged bool, going int64, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case logged == c.syncs:
		return // it began before the way changed
	case c.start.IsZero() || now.Sub(c.last) > maxGap:
		if c.trial && !c.start.IsZero() {
			c.conclude(false, now) // the load has ended: there is nothing to compare
		}
		c.measure(now)
		return
	}
	c.n++
	c.last, c.peak = now, max(c.peak, int(going))
	sample := max(minSample, minTurns*c.peak)
	took := now.Sub(c.start).Seconds()
	rate := float64(c.n) / max(took, 1e-9)
	switch {
	case c.trial && c.n < sample && took*c.before > float64(hopeless*sample):
		c.conclude(false, now)
	case c.n < sample:
	case c.trial:
		if c.syncs {
			c.conclude(advantage*rate >= c.before, now)
		} else {
			c.conclude(rate >= advantage*c.before, now)
		}
	case now.Before(c.recheck):
		c.measure(now) // the rate just before the trial counts
	default:
		c.before, c.trial, c.syncs, c.start = rate, true, !c.syncs, time.Time{}
	}
}

// measure begins a measurement. The caller holds the mutex.
func (c *choice) measure(now time.Time) { c.n, c.peak, c.start, c.last = 0, 0, now, now }

// conclude ends a trial and keeps its result. The caller holds the mutex.
func (c *choice) conclude(won bool, now time.Time) {
	if c.trial = false; won {
		c.keep = minKeep
	} else {
		c.syncs = !c.syncs
		c.keep = min(max(2*c.keep, minKeep), maxKeep)
	}
	c.recheck = now.Add(c.keep)
	c.start = time.Time{}
}
