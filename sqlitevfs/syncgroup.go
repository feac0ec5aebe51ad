// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/sqlitevfs/internal/disk"
)

// Limits of a syncGroup. docs/groupsync.md has the measurements behind them.
const (
	// minGroup is the least number of callers that share a syncfs. Two plain syncs are
	// as fast as one syncfs for both.
	minGroup = 3
	// waitFactor times the duration of a syncfs is how long callers wait for the other
	// callers of a round; minWait is the least time that they wait.
	waitFactor = 2
	minWait    = 200 * time.Microsecond
	// A syncfs may take slowFactor times as long as the plain syncs that it replaces, and
	// at least minLimit. A slower syncfs writes much data of other programs, and callers
	// should not wait for that.
	slowFactor = 4
	minLimit   = 10 * time.Millisecond
	// After a slow syncfs only plain syncs are used for a time between minPause and
	// maxPause, at least costFactor times as long as it took. After quickRun quick ones in a row the next pause is minPause again.
	minPause = 100 * time.Millisecond
	maxPause = time.Minute
	quickRun = 100
)

// syncGroup lets callers that sync files of one file system at the same time share one
// syncfs. A round is one such syncfs with the callers that wait for it. Where the policy finds
// that sharing is faster, callers wait until as many have arrived as took part in the last
// round. The last caller to arrive makes the first one the leader, which calls syncfs for
// all. A sync covers the data that its caller wrote before it called sync.
type syncGroup struct {
	syncFile   func(fd int) error // fdatasync
	syncAll    func(fd int) error // syncfs
	writeError func(fd int) error // returns the error of writes of a file that failed
	needsFlush bool               // syncfs may leave out the device's flush; an fdatasync makes up for it
	// leavesRemovals: the first sync of a new file covers its entry, but not what was removed from its directory before.
	leavesRemovals bool
	minLimit       time.Duration
	forced         bool // share without comparing rates

	mu        sync.Mutex
	alone     int       // running plain syncs
	leading   bool      // a syncfs is running
	served    int       // callers that it serves
	waiting   []*waiter // in the order in which they arrived
	expected  int       // callers that took part in the last round
	timer     *time.Timer
	round     uint64        // number of the round
	aloneTime time.Duration // moving average of a plain sync
	groupTime time.Duration // moving average of a syncfs

	policy syncPolicy

	ended       time.Time     // the last sync
	pausedUntil time.Time     // no syncfs before this time
	pause       time.Duration // length of the last pause
	quick       int           // syncfs calls in a row that were quick
}

// waiter is a caller that waits. It receives one turn.
type waiter struct {
	caller    any
	turn      chan turn
	followers []*waiter // the callers for which it calls syncfs
	err       error     // of the leader's syncfs
}

// turn is what a waiter does next.
type turn int

const (
	turnDone  turn = iota // the leader has called syncfs
	turnLead              // call syncfs for the followers
	turnAlone             // sync alone; syncGroup.alone counts the caller already
)

// outcome is how a file was synced.
type outcome struct {
	shared bool // by a syncfs: everything in the file system is durable
	led    bool // this caller called syncfs
}

func newSyncGroup() *syncGroup {
	return &syncGroup{syncFile: sys.Fdatasync, syncAll: syncfs, writeError: written, minLimit: minLimit}
}

// sync makes a file durable. caller identifies the database, which syncs one file at a time.
func (g *syncGroup) sync(caller any, fd int) (outcome, error) {
	now := time.Now()
	g.mu.Lock()
	present := g.alone + len(g.waiting) + g.served + 1
	if present == 1 && !g.ended.IsZero() && now.Sub(g.ended) > maxGap {
		g.policy.idle()
	}
	if g.paused(now) || !g.shares(present, now) {
		g.alone++
		g.mu.Unlock()
		return outcome{}, g.syncAlone(caller, fd, present)
	}
	w := &waiter{caller: caller, turn: make(chan turn, 1)}
	g.waiting = append(g.waiting, w)
	g.dispatch()
	limit := g.limit(len(g.waiting)) + g.maxWait()
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

// shares reports whether a caller is to wait for others. present is the number of callers
// in sync, including this one. The caller holds mu.
func (g *syncGroup) shares(present int, now time.Time) bool {
	switch {
	case g.policy.sharing:
		return true
	case g.forced && (present >= minGroup || g.policy.active() > 0):
	case !g.forced && g.policy.wantsTrial(now):
	default:
		return false
	}
	g.expected = max(present, g.policy.active())
	g.policy.start(now)
	return true
}

// syncEverything makes all files of the file system durable. all is an error that may
// concern any of them. own concerns the caller's file: the kernel has reported it through
// this descriptor and does not report it again.
func (g *syncGroup) syncEverything(fd int) (all, own error) {
	if all = g.syncAll(fd); all == nil && g.needsFlush {
		own = g.syncFile(fd)
		all = own
	}
	return all, own
}

// paused reports whether syncfs is not to be used now. The caller holds mu.
func (g *syncGroup) paused(now time.Time) bool {
	return !g.pausedUntil.IsZero() && now.Before(g.pausedUntil)
}

// limit returns how long a syncfs for n files may take. The caller holds mu.
func (g *syncGroup) limit(n int) time.Duration {
	return max(slowFactor*g.aloneTime*time.Duration(n), g.minLimit)
}

// maxWait returns how long the first caller of a round waits for the others. The caller
// holds mu.
func (g *syncGroup) maxWait() time.Duration { return max(waitFactor*g.groupTime, minWait) }

// dispatch gives turns to waiters when all expected ones have arrived, or when none should
// wait any more. Otherwise it starts the timer of the round. The caller holds mu.
func (g *syncGroup) dispatch() {
	switch {
	case g.leading || len(g.waiting) == 0:
	case !g.policy.sharing || g.paused(time.Now()):
		g.release()
	case len(g.waiting) >= g.expected:
		g.closeRound()
	case g.timer == nil:
		round := g.round
		g.timer = time.AfterFunc(g.maxWait(), func() { g.expire(round) })
	}
}

// expire ends the wait of a round for callers that did not arrive.
func (g *syncGroup) expire(round uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.round != round || g.timer == nil {
		return
	}
	g.timer = nil
	switch {
	case len(g.waiting) == 0:
	case g.alone > 0: // these callers will sync again
		g.dispatch()
	default:
		g.closeRound()
	}
}

// closeRound makes the waiters share a syncfs, or sync alone if there are too few of them.
// The caller holds mu.
func (g *syncGroup) closeRound() {
	if n := len(g.waiting); n < minGroup {
		g.policy.addMiss(time.Now())
		g.expected = max(n+g.alone, minGroup)
		g.release()
		return
	}
	g.endWait()
	g.leading, g.served = true, len(g.waiting)
	leader := g.waiting[0]
	leader.followers = slices.Clone(g.waiting[1:])
	g.waiting = nil
	leader.turn <- turnLead
}

// release lets each waiter sync alone. The caller holds mu.
func (g *syncGroup) release() {
	g.endWait()
	for _, w := range g.waiting {
		g.alone++
		w.turn <- turnAlone
	}
	g.waiting = nil
}

// endWait stops the timer of the round. The caller holds mu.
func (g *syncGroup) endWait() {
	if g.timer != nil {
		g.timer.Stop()
		g.timer = nil
	}
	g.round++
}

// take carries out a turn.
func (g *syncGroup) take(t turn, w *waiter, fd int) (outcome, error) {
	switch t {
	case turnDone:
		return g.confirm(fd, w.err, outcome{shared: true})
	case turnLead:
		return g.lead(w, fd)
	}
	return outcome{}, g.syncAlone(w.caller, fd, 0)
}

// syncAlone syncs one file by itself. present is the number of callers that were in
// sync when it began, 0 if it was one of the waiters of a round.
func (g *syncGroup) syncAlone(caller any, fd, present int) error {
	start := time.Now()
	err := g.syncFile(fd)
	now := time.Now()
	g.mu.Lock()
	defer g.mu.Unlock()
	average(&g.aloneTime, now.Sub(start))
	g.policy.addAlone(caller, present, now)
	g.alone--
	g.ended = now
	return err
}

// average moves an average towards a new value.
func average(avg *time.Duration, took time.Duration) {
	if *avg == 0 {
		*avg = took
	}
	*avg += (took - *avg) / 16
}

// lead syncs for a leader and its followers.
func (g *syncGroup) lead(w *waiter, fd int) (outcome, error) {
	start := time.Now()
	err, own := g.syncEverything(fd)
	now := time.Now()
	took := now.Sub(start)
	g.mu.Lock()
	average(&g.groupTime, took)
	for _, f := range w.followers {
		f.err = err
		f.turn <- turnDone
	}
	n := len(w.followers) + 1
	g.leading, g.served, g.ended = false, 0, now
	g.expected = n + len(g.waiting) + g.alone
	g.policy.addShared(n, now)
	if !g.forced {
		g.policy.decide(g.expected, now)
	}
	g.pauseIfSlow(took, n)
	g.dispatch()
	g.mu.Unlock()
	if own != nil {
		return outcome{}, own
	}
	return g.confirm(fd, err, outcome{shared: true, led: true})
}

// pauseIfSlow returns to plain syncs for a while when a syncfs for n files was slow. The
// caller holds mu.
func (g *syncGroup) pauseIfSlow(took time.Duration, n int) {
	if took <= g.limit(n) {
		if g.quick++; g.quick > quickRun {
			g.pause = 0
		}
		return
	}
	g.quick = 0
	g.pause = min(max(2*g.pause, minPause, costFactor*took), maxPause)
	g.pausedUntil = time.Now().Add(g.pause)
	g.policy.stop()
}

// leave ends a wait that has lasted too long because the syncfs is slow.
func (g *syncGroup) leave(w *waiter, fd int) (outcome, error) {
	g.mu.Lock()
	select {
	case t := <-w.turn: // it arrived after the timer
		g.mu.Unlock()
		return g.take(t, w, fd)
	default:
	}
	if i := slices.Index(g.waiting, w); i >= 0 {
		g.waiting = slices.Delete(g.waiting, i, i+1)
	}
	g.alone++
	g.mu.Unlock()
	return outcome{}, g.syncAlone(w.caller, fd, 0)
}

// confirm returns the result for one file after a syncfs. An error of syncfs may concern
// another file, so the file is then synced by itself.
func (g *syncGroup) confirm(fd int, err error, how outcome) (outcome, error) {
	if own := g.writeError(fd); own != nil {
		return outcome{}, own
	}
	if err != nil {
		return outcome{}, g.syncFile(fd)
	}
	return how, nil
}

// syncGroups holds the groups of this process. Databases of all VFSes of this package
// share them.
var syncGroups struct {
	mu  sync.Mutex
	all map[syncGroupKey]*syncGroup
}

// syncGroupKey identifies a group.
type syncGroupKey struct {
	device uint64
	how    sharing // after an unmount another file system may get the same device number
	forced bool
}

// syncGroupOf returns the group of a file, nil where syncs are not shared. how is the result
// of sharingOf for the file.
func syncGroupOf(fd int, how sharing, forced bool) *syncGroup {
	id := fileID(fd)
	if id == (disk.ID{}) || how == noSharing {
		return nil
	}
	key := syncGroupKey{id.Device, how, forced}
	syncGroups.mu.Lock()
	defer syncGroups.mu.Unlock()
	g := syncGroups.all[key]
	if g == nil {
		g = newSyncGroup()
		g.forced, g.needsFlush, g.leavesRemovals = forced, how == bySyncFSAndFlush, how == bySyncFSNotRemovals
		if syncGroups.all == nil {
			syncGroups.all = make(map[syncGroupKey]*syncGroup)
		}
		syncGroups.all[key] = g
	}
	return g
}

func (d *database) groupState() string {
	if off := d.groupOff.Load(); off != nil {
		return cmp.Or(*off, "on")
	}
	return "off: the first connection is being opened"
}
