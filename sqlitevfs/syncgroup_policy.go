// SPDX-License-Identifier: MIT

package sqlitevfs

import "time"

// Limits of a syncPolicy. docs/groupsync.md has the measurements behind them.
const (
	// minSyncs is the least number of syncs that are measured before rates are compared,
	// and minRounds the least number of syncs of each caller.
	minSyncs  = 64
	minRounds = 4
	// maxSample is how long a measurement of plain syncs may take.
	maxSample = 250 * time.Millisecond
	// advantage is the least ratio of the rate of shared syncs to the rate of plain syncs
	// with which sharing wins.
	advantage = 1.05
	// losingRounds is the number of rounds within which shared syncs must reach that advantage.
	// A round lasts as long as its slowest caller. A round in which a caller waited for a
	// processor is therefore weak evidence.
	losingRounds = 8
	// hopeless is how many times slower shared syncs may be in a trial. The trial ends at
	// once if they are slower than that, for example because syncfs writes much data of
	// other programs.
	hopeless = 4
	// costFactor times the duration of a trial that sharing lost is the least time until the
	// next trial. The first syncfs of a trial writes all that other programs have written.
	costFactor = 20
	// maxGap is the longest time without a caller in sync within a measurement.
	maxGap = 10 * time.Millisecond
	// maxMisses is how many rounds in a row may have too few callers.
	maxMisses = 3
	// minOverlap is the most plain syncs for each plain sync that overlapped another one.
	// A caller that syncs its databases one after the other has no overlap.
	minOverlap = 16
	// A result is kept for a time between minRecheck and maxRecheck before it is measured
	// again. The time doubles with each confirmation.
	minRecheck = 100 * time.Millisecond
	maxRecheck = time.Minute
	// clearRecheck is the least such time if shared syncs had clearAdvantage.
	clearAdvantage = 1.5
	clearRecheck   = time.Second
)

// syncPolicy decides whether callers sync by themselves or share a syncfs. It measures
// both, one after the other, as syncs per second. The duration of a sync would not include the
// time in which callers wait for a processor while threads are in fdatasync. The zero value
// chooses plain syncs. The mutex of the group guards it.
type syncPolicy struct {
	sharing bool

	alone, shared meter
	callers       map[any]bool // in the measurement of plain syncs
	overlaps      int          // plain syncs that another one overlapped

	began   time.Time     // the trial, or sharing that is settled
	beaten  float64       // while settled: the rate of plain syncs that sharing has beaten
	won     bool          // sharing won the last comparison
	settled bool          // sharing won and is kept until recheck
	recheck time.Time     // when to measure again
	keep    time.Duration // how long the last result is kept
	misses  int           // rounds in a row with too few callers
	rounds  int           // rounds since sharing began; the first is not typical
}

// meter measures a rate.
type meter struct {
	n     int
	start time.Time
	took  time.Duration
}

// add counts n syncs that have just ended. The first call starts the clock only.
func (m *meter) add(n int, now time.Time) {
	if m.start.IsZero() {
		m.start = now
		return
	}
	m.n += n
	m.took = now.Sub(m.start)
}

// rate returns syncs per second.
func (m *meter) rate() float64 { return float64(m.n) / max(m.took.Seconds(), 1e-9) }

// covers reports whether enough syncs were measured for that many rounds of that many
// callers.
func (m *meter) covers(rounds, callers int) bool { return m.n >= max(minSyncs, rounds*callers) }

// addAlone counts a plain sync. present is the number of callers that were in sync. The
// measurement begins when there are two, and begins again if it takes too long.
func (p *syncPolicy) addAlone(caller any, present int, now time.Time) {
	if p.sharing || p.alone.start.IsZero() && present < 2 {
		return
	}
	if p.callers == nil {
		p.callers = make(map[any]bool)
	}
	p.callers[caller] = true
	if present >= 2 {
		p.overlaps++
	}
	if p.alone.add(1, now); p.alone.took > maxSample {
		p.reset()
	}
}

// reset begins the measurement of plain syncs again.
func (p *syncPolicy) reset() {
	p.alone, p.overlaps = meter{}, 0
	clear(p.callers)
}

// active returns the number of callers that sync concurrently, 0 if sharing is not worth a
// trial. The number of callers in sync at one moment would be too small: with GOMAXPROCS=2 it
// is hardly ever more than two, because the other callers wait for a processor.
func (p *syncPolicy) active() int {
	if len(p.callers) < minGroup || p.overlaps*minOverlap < p.alone.n {
		return 0
	}
	return len(p.callers)
}

// wantsTrial reports whether sharing should be tried now.
func (p *syncPolicy) wantsTrial(now time.Time) bool {
	if now.Before(p.recheck) {
		p.reset() // only the rate just before the trial counts
		return false
	}
	n := p.active()
	return n > 0 && p.alone.covers(minRounds, n)
}

// start begins sharing.
func (p *syncPolicy) start(now time.Time) {
	p.sharing, p.settled, p.shared = true, false, meter{}
	p.misses, p.rounds, p.began = 0, 0, now
}

// idle begins the measurements again, and ends a trial, after a time without a caller in
// sync: it says nothing about the rate of syncs.
func (p *syncPolicy) idle() {
	if !p.settled {
		p.stop()
	}
	p.shared = meter{}
}

// stop ends sharing.
func (p *syncPolicy) stop() {
	p.sharing, p.settled = false, false
	p.reset()
}

// addShared counts a round of n callers.
func (p *syncPolicy) addShared(n int, now time.Time) {
	if p.rounds++; p.sharing && p.rounds > 1 {
		p.shared.add(n, now)
	}
	p.misses = 0
}

// addMiss counts a round with too few callers. After maxMisses such rounds in a row sharing
// ends, because the callers sync one after the other. It is then tried less and less often.
func (p *syncPolicy) addMiss(now time.Time) {
	if p.misses++; p.misses >= maxMisses {
		p.conclude(false, now)
	}
}

// decide compares the two rates when both are known.
func (p *syncPolicy) decide(callers int, now time.Time) {
	switch {
	case !p.sharing:
	case p.settled && now.After(p.recheck):
		p.stop()
	case p.settled && p.shared.covers(minRounds, callers):
		if p.shared.rate() < p.beaten { // for example, another program has begun to write
			p.conclude(false, now)
		}
		p.shared = meter{start: now}
	case !p.settled && p.shared.n > 0 && hopeless*p.shared.rate() < p.alone.rate():
		p.conclude(false, now)
	case p.settled || !p.shared.covers(minRounds, callers):
	case p.shared.rate() >= advantage*p.alone.rate():
		p.conclude(true, now)
	case 2*p.shared.rate() > p.alone.rate() && !p.shared.covers(losingRounds, callers):
		// Sharing may still win.
	default:
		p.conclude(false, now)
	}
}

// conclude keeps a result for a while.
func (p *syncPolicy) conclude(won bool, now time.Time) {
	if won != p.won {
		p.won, p.keep = won, 0
	}
	p.keep = max(2*p.keep, minRecheck)
	switch {
	case !won && !p.settled:
		p.keep = max(p.keep, costFactor*now.Sub(p.began))
	case won && p.shared.rate() > clearAdvantage*p.alone.rate():
		p.keep = max(p.keep, clearRecheck)
	}
	p.keep = min(p.keep, maxRecheck)
	p.beaten = p.alone.rate()
	p.sharing, p.settled, p.shared = won, won, meter{start: now}
	p.recheck = now.Add(p.keep)
	p.reset()
}
