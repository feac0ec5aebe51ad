// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"slices"
	"sync"
	"time"
)

// Limits of group sync; docs/groupsync.md has what they were measured by.
const (
	// few is how many have to want a sync at a time before they wait for each
	// other: two plain syncs are as fast as one syncfs for both.
	few = 3
	// sample is how many syncs at least are measured, and rounds how many of each
	// caller, before one way is said to be faster than the other; advantage is by
	// how many times syncfs has to be.
	sample    = 64
	rounds    = 4
	advantage = 1.05
	// defeat is how many rounds syncfs may take to win: a round lasts as long as its
	// slowest caller, and one in which a caller got no processor says little.
	defeat = 8
	// apart is how many plain syncs there may be for each that another ran beside. A
	// caller alone that goes through its databases one after the other has none.
	apart = 16
	// misses is how many times in a row too few may have come.
	misses = 3
	// maxSample is how long that may take.
	maxSample = 250 * time.Millisecond
	// minRecheck and maxRecheck bound for how long the faster way is kept
	// before the other is measured again: twice as long each time that it lost.
	minRecheck = 100 * time.Millisecond
	maxRecheck = time.Minute
	// clearRecheck is for how long at least when syncfs won so many times over.
	clearly      = 1.5
	clearRecheck = time.Second
	// patience is how many times longer than a syncfs those that came wait for
	// the others.
	patience    = 2
	minPatience = 200 * time.Microsecond
	// slowSyncs is how many times longer than the plain syncs that it saves a
	// syncfs may take: then somebody else writes a lot to the file system, for
	// which nobody here has to wait.
	slowSyncs = 4
	minLimit  = 10 * time.Millisecond
	// minPause and maxPause bound how long plain syncs are used after that; a
	// hundred quick ones later it is forgotten.
	minPause = 100 * time.Millisecond
	maxPause = time.Minute
	forget   = 100
)

// group lets those that want to sync files of one file system at the same time
// share one syncfs. When that is faster for those who are there, they wait until
// as many have come as took part the last time, and the last one calls syncfs for
// all. What a caller wrote before it joined is thereby durable.
type group struct {
	file   func(fd int) error // fdatasync
	all    func(fd int) error // syncfs
	check  func(fd int) error // reports what failed to be written of a file
	flush  bool               // syncfs may leave out the device's flush: fdatasync has to follow
	least  time.Duration      // that a syncfs may take in any case
	forced bool               // to be used also where it is not faster

	mu      sync.Mutex
	running int  // plain syncs
	leading bool // a syncfs runs
	served  int  // for so many
	waiting []*waiter
	crew    int         // how many took part in the last round
	hurry   *time.Timer // ends the wait for the others
	round   uint64
	plain   time.Duration // what a plain sync takes, on average
	took    time.Duration // what a syncfs takes, on average

	choice choice

	until time.Time // no syncfs before
	pause time.Duration
	good  int // calls of syncfs in a row that were quick
}

// waiter is told once what to do.
type waiter struct {
	caller any
	turn   chan turn
	others []*waiter // for whom it leads
	err    error     // of the syncfs that was made for it
}

type turn int

const (
	synced turn = iota // a syncfs has been made
	lead               // make one for others
	single             // sync by yourself: running counts it already
)

// outcome says how a file was synced.
type outcome struct {
	shared bool // by a syncfs: everything in the file system is durable
	led    bool // which this caller made
}

func newGroup() *group { return &group{file: fdatasync, all: syncfs, check: written, least: minLimit} }

// sync makes a file durable. caller is one that syncs one file at a time: a database.
func (g *group) sync(caller any, fd int) (outcome, error) {
	now := time.Now()
	g.mu.Lock()
	present := g.running + len(g.waiting) + g.served + 1
	if g.resting(now) || !g.gather(present, now) {
		g.running++
		g.mu.Unlock()
		return outcome{}, g.single(caller, fd, present)
	}
	w := &waiter{caller: caller, turn: make(chan turn, 1)}
	g.waiting = append(g.waiting, w)
	g.next()
	limit := g.limit(len(g.waiting)) + g.patience()
	g.mu.Unlock()

	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case t := <-w.turn:
		return g.take(t, w, fd)
	case <-timer.C:
		return g.leave(w, fd)
	}
}

// gather says whether a caller is to wait for others, when so many are there.
// The caller holds mu.
func (g *group) gather(present int, now time.Time) bool {
	switch {
	case g.choice.together:
		return true
	case g.forced && (present >= few || g.choice.crowd() > 0):
	case !g.forced && g.choice.tryTogether(now):
	default:
		return false
	}
	g.crew = max(present, g.choice.crowd())
	g.choice.begin()
	return true
}

// whole makes a file durable together with its directory entry, by a syncfs of
// its own: cheaper than to sync both. It says false where that is not the time for
// one, and does nothing.
func (g *group) whole(fd int) (how outcome, done bool, err error) {
	start := time.Now()
	g.mu.Lock()
	quiet := !g.resting(start) && !g.leading && g.running == 0 && len(g.waiting) == 0 && !g.choice.together && g.plain != 0
	if quiet {
		g.leading, g.served = true, 1
	}
	g.mu.Unlock()
	if !quiet {
		return outcome{}, false, nil
	}
	err, own := g.everything(fd)
	took := time.Since(start)
	g.mu.Lock()
	g.leading, g.served = false, 0
	g.judge(took, 2)
	g.next()
	g.mu.Unlock()
	if own == nil {
		how, own = g.confirm(fd, err, outcome{shared: true, led: true})
	}
	return how, true, own
}

// everything makes all files of the file system durable. all is an error that may
// concern any of them. own concerns the caller's file: fdatasync has reported it and
// does not report it again.
func (g *group) everything(fd int) (all, own error) {
	if all = g.all(fd); all == nil && g.flush {
		own = g.file(fd)
		all = own
	}
	return all, own
}

// resting says whether syncfs is not to be used. The caller holds mu.
func (g *group) resting(now time.Time) bool { return !g.until.IsZero() && now.Before(g.until) }

// limit is how long a syncfs for n files may take. The caller holds mu.
func (g *group) limit(n int) time.Duration {
	return max(slowSyncs*g.plain*time.Duration(n), g.least)
}

// patience is how long the first to come waits for others. The caller holds mu.
func (g *group) patience() time.Duration { return max(patience*g.took, minPatience) }

// next gives turns to those who wait: when all are there, or nobody is to wait
// any more. The caller holds mu.
func (g *group) next() {
	switch {
	case g.leading || len(g.waiting) == 0:
	case !g.choice.together || g.resting(time.Now()):
		g.disperse()
	case len(g.waiting) >= g.crew:
		g.meet()
	case g.hurry == nil:
		round := g.round
		g.hurry = time.AfterFunc(g.patience(), func() { g.late(round) })
	}
}

// late ends the wait of a round for those that did not come.
func (g *group) late(round uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.round != round || g.hurry == nil {
		return
	}
	g.hurry = nil
	switch {
	case len(g.waiting) == 0:
	case g.running > 0: // they will be back
		g.next()
	default:
		g.meet()
	}
}

// meet lets those who wait sync together, if it is worth it. The caller holds mu.
func (g *group) meet() {
	if n := len(g.waiting); n < few {
		g.choice.missed(time.Now())
		g.crew = max(n+g.running, few)
		g.disperse()
		return
	}
	g.start()
}

// over ends the wait of this round. The caller holds mu.
func (g *group) over() {
	if g.hurry != nil {
		g.hurry.Stop()
		g.hurry = nil
	}
	g.round++
}

// start makes the first lead the others. The caller holds mu.
func (g *group) start() {
	g.over()
	g.leading, g.served = true, len(g.waiting)
	w := g.waiting[0]
	w.others = slices.Clone(g.waiting[1:])
	g.waiting = nil
	w.turn <- lead
}

// disperse lets everybody sync for itself. The caller holds mu.
func (g *group) disperse() {
	g.over()
	for _, w := range g.waiting {
		g.running++
		w.turn <- single
	}
	g.waiting = nil
}

// take does what a waiter was told.
func (g *group) take(t turn, w *waiter, fd int) (outcome, error) {
	switch t {
	case synced:
		return g.confirm(fd, w.err, outcome{shared: true})
	case lead:
		return g.lead(w, fd)
	}
	return outcome{}, g.single(w.caller, fd, 0)
}

// single syncs one file by itself, for a caller that found so many there.
func (g *group) single(caller any, fd, present int) error {
	start := time.Now()
	err := g.file(fd)
	now := time.Now()
	took := now.Sub(start)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.plain == 0 {
		g.plain = took
	}
	g.plain += (took - g.plain) / 16
	g.choice.alone(caller, present, now)
	g.running--
	return err
}

// lead syncs for those who wait.
func (g *group) lead(w *waiter, fd int) (outcome, error) {
	start := time.Now()
	err, own := g.everything(fd)
	now := time.Now()
	g.mu.Lock()
	took := now.Sub(start)
	if g.took == 0 {
		g.took = took
	}
	g.took += (took - g.took) / 16
	for _, o := range w.others {
		o.err = err
		o.turn <- synced
	}
	n := len(w.others) + 1
	g.leading, g.served = false, 0
	g.crew = n + len(g.waiting) + g.running
	g.choice.shared(n, now)
	if !g.forced {
		g.choice.judge(g.crew, now)
	}
	g.judge(took, n)
	g.next()
	g.mu.Unlock()
	if own != nil {
		return outcome{}, own
	}
	return g.confirm(fd, err, outcome{shared: true, led: true})
}

// judge turns to plain syncs for a while when a syncfs was slow. The caller
// holds mu.
func (g *group) judge(took time.Duration, n int) {
	if took <= g.limit(n) {
		if g.good++; g.good > forget {
			g.pause = 0
		}
		return
	}
	g.good = 0
	g.pause = min(max(2*g.pause, minPause), maxPause)
	g.until = time.Now().Add(g.pause)
	g.choice.together = false
}

// leave ends a wait that has lasted too long: the syncfs is slow.
func (g *group) leave(w *waiter, fd int) (outcome, error) {
	g.mu.Lock()
	select {
	case t := <-w.turn: // just now
		g.mu.Unlock()
		return g.take(t, w, fd)
	default:
	}
	if i := slices.Index(g.waiting, w); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.running++
	g.mu.Unlock()
	return outcome{}, g.single(w.caller, fd, 0)
}

// confirm turns the result of a syncfs into that of one file: an error may be
// another file's, and then only this file is known to be durable.
func (g *group) confirm(fd int, err error, how outcome) (outcome, error) {
	if own := g.check(fd); own != nil {
		return outcome{}, own
	}
	if err != nil {
		return outcome{}, g.file(fd)
	}
	return how, nil
}

// groups are the groups of this process: databases of every VFS of this package
// share them.
var groups struct {
	mu  sync.Mutex
	all map[groupKey]*group
}

// groupKey says who chooses together. Syncs of a WAL, which is appended to, and
// those of a rollback journal gain differently by sharing.
type groupKey struct {
	device uint64
	how    sharing // other file systems get the number of one that was unmounted
	wal    bool
	forced bool
}

// groupOf returns the group of the file system that a file lies on, nil where
// there is none. how is what sharingOf returned.
func groupOf(fd int, how sharing, wal, forced bool) *group {
	dev, ok := device(fd)
	if !ok || how == noSharing {
		return nil
	}
	key := groupKey{dev, how, wal, forced}
	groups.mu.Lock()
	defer groups.mu.Unlock()
	g := groups.all[key]
	if g == nil {
		g = newGroup()
		g.forced, g.flush = forced, how == bySyncFSAndFlush
		if groups.all == nil {
			groups.all = make(map[groupKey]*group)
		}
		groups.all[key] = g
	}
	return g
}
