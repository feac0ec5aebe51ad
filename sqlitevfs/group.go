// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"slices"
	"sync"
	"time"
)

// Limits of group sync, all measured (ext4 on a virtio disk, two processors).
const (
	// alone is how many syncs run side by side before others wait for company.
	// With four databases one syncfs for two was slower than two plain syncs.
	alone = 4
	// company is how many have to wait before one syncs for all.
	company = 6
	// slowSyncs is how many times longer than the plain syncs that it saves a
	// syncfs may take: then somebody else writes a lot to the file system, for
	// which nobody here has to wait.
	slowSyncs = 4
	minLimit  = 10 * time.Millisecond
	// minPause and maxPause bound how long plain syncs are used after that; a
	// hundred quick ones later it is forgotten.
	minPause = 250 * time.Millisecond
	maxPause = time.Minute
	forget   = 100
)

// group lets those that want to sync files of one file system at the same time
// share one syncfs. Whoever comes while others are syncing waits; when enough do,
// the first calls syncfs for all. What a caller wrote before it joined is
// thereby durable.
type group struct {
	file  func(fd int) error // fdatasync
	all   func(fd int) error // syncfs
	check func(fd int) error // reports what failed to be written of a file
	least time.Duration      // that a syncfs may take in any case

	mu      sync.Mutex
	running int  // plain syncs
	leading bool // a syncfs runs
	waiting []*waiter
	plain   time.Duration // what a plain sync takes, on average
	until   time.Time     // no syncfs before
	pause   time.Duration
	good    int // calls of syncfs in a row that were quick
}

// waiter is told once what to do.
type waiter struct {
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

// sync makes a file durable.
func (g *group) sync(fd int) (outcome, error) {
	g.mu.Lock()
	if g.resting() || !g.leading && g.running < alone && len(g.waiting) == 0 {
		g.running++
		g.mu.Unlock()
		return outcome{}, g.single(fd)
	}
	w := &waiter{turn: make(chan turn, 1)}
	g.waiting = append(g.waiting, w)
	g.next()
	limit := g.limit(len(g.waiting))
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

// whole makes a file durable together with its directory entry, by a syncfs of
// its own: cheaper than to sync both. It says false where that is not the time for
// one, and does nothing.
func (g *group) whole(fd int) (how outcome, done bool, err error) {
	g.mu.Lock()
	quiet := !g.resting() && !g.leading && g.running == 0 && g.plain != 0
	if quiet {
		g.leading = true
	}
	g.mu.Unlock()
	if !quiet {
		return outcome{}, false, nil
	}
	start := time.Now()
	err = g.all(fd)
	took := time.Since(start)
	g.mu.Lock()
	g.leading = false
	g.judge(took, 2)
	g.next()
	g.mu.Unlock()
	how, err = g.confirm(fd, err, outcome{shared: true, led: true})
	return how, true, err
}

// resting says whether syncfs is not to be used. The caller holds mu.
func (g *group) resting() bool { return !g.until.IsZero() && time.Now().Before(g.until) }

// limit is how long a syncfs for n files may take. The caller holds mu.
func (g *group) limit(n int) time.Duration {
	return max(slowSyncs*g.plain*time.Duration(n), g.least)
}

// next gives turns to those who wait. The caller holds mu.
func (g *group) next() {
	if g.leading {
		return
	}
	rest := g.resting()
	if len(g.waiting) >= company && !rest {
		g.leading = true
		w := g.waiting[0]
		w.others = append(w.others, g.waiting[1:]...)
		g.waiting = nil
		w.turn <- lead
		return
	}
	for len(g.waiting) > 0 && (g.running < alone || rest) {
		g.running++
		g.waiting[0].turn <- single
		g.waiting = g.waiting[1:]
	}
}

// take does what a waiter was told.
func (g *group) take(t turn, w *waiter, fd int) (outcome, error) {
	switch t {
	case synced:
		return g.confirm(fd, w.err, outcome{shared: true})
	case lead:
		return g.lead(w, fd)
	}
	return outcome{}, g.single(fd)
}

// single syncs one file by itself.
func (g *group) single(fd int) error {
	start := time.Now()
	err := g.file(fd)
	took := time.Since(start)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.plain == 0 {
		g.plain = took
	}
	g.plain += (took - g.plain) / 16
	g.running--
	g.next()
	return err
}

// lead syncs for those who wait.
func (g *group) lead(w *waiter, fd int) (outcome, error) {
	start := time.Now()
	err := g.all(fd)
	took := time.Since(start)
	g.mu.Lock()
	for _, o := range w.others {
		o.err = err
		o.turn <- synced
	}
	g.leading = false
	g.judge(took, len(w.others)+1)
	g.next()
	g.mu.Unlock()
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
	return outcome{}, g.single(fd)
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
