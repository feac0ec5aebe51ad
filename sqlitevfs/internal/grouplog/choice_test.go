// SPDX-License-Identifier: MIT

package grouplog

import (
	"testing"
	"time"
)

// commits passes commits with the given durations, by the log and by syncs, to a choice,
// and returns how many used the log.
func (c *choice) commits(now *time.Time, n int, log, sync time.Duration) (logged int) {
	for range n {
		if c.logs() {
			*now = now.Add(log)
			c.add(true, 1, *now)
			logged++
		} else {
			*now = now.Add(sync)
			c.add(false, 1, *now)
		}
	}
	return logged
}

// Promise: sqlitevfs/log-commits-left
func TestChoiceTakesTheFasterWay(t *testing.T) {
	const n = 200_000
	for _, test := range []struct {
		name        string
		log, sync   time.Duration
		least, most int // commits by the log
	}{
		{"the log is faster", 100 * time.Microsecond, 200 * time.Microsecond, n * 97 / 100, n},
		{"the log is faster by a seventh", 100 * time.Microsecond, 114 * time.Microsecond, n * 97 / 100, n},
		{"the log is a little faster", 95 * time.Microsecond, 100 * time.Microsecond, 0, n * 3 / 100},
		{"a sync is faster", 150 * time.Microsecond, 100 * time.Microsecond, 0, n * 3 / 100},
		{"a sync is much slower", 100 * time.Microsecond, 2 * time.Millisecond, n * 97 / 100, n},
	} {
		var c choice
		now := time.Unix(1000, 0)
		if got := c.commits(&now, n, test.log, test.sync); got < test.least || got > test.most {
			t.Errorf("%s: %d of %d commits by the log, want %d to %d", test.name, got, n, test.least, test.most)
		}
	}
}

// TestWays uses two logs of a file system, with one commit at a time each.
// Promise: sqlitevfs/log-commits-left
func TestWays(t *testing.T) {
	needLocks(t)
	var ways Ways
	for range 2 {
		l, _ := mustOpen(t, t.TempDir(), Options{Ways: &ways})
		defer mustClose(t, l)
		w := wals(t, l.dir, 1)[0]
		w.attach(l)
		turn := w.wal.Enter(4 << 10)
		defer w.wal.Leave(turn)
		if !turn.Log {
			t.Error("the log is not used")
		}
		ways.choice.syncs = true
		if other := w.wal.Enter(4 << 10); other.Log {
			t.Error("the log is used, although syncs are faster on the file system")
		} else {
			w.wal.Leave(other)
		}
		ways.choice.syncs = false
	}
	if n := ways.going.Load(); n != 2 {
		t.Errorf("%d commits are in progress, want 2", n)
	}
}

// Promise: sqlitevfs/log-commits-left
func TestChoiceFollowsTheLoad(t *testing.T) {
	var c choice
	now := time.Unix(1000, 0)
	c.commits(&now, 10_000, 200*time.Microsecond, 100*time.Microsecond)
	if c.logs() {
		t.Fatal("the log is used although it is slower")
	}
	c.commits(&now, 600_000, 100*time.Microsecond, 200*time.Microsecond)
	if got := c.commits(&now, 10_000, 100*time.Microsecond, 200*time.Microsecond); got < 9_000 {
		t.Errorf("%d of 10000 commits by the log, although it has become faster", got)
	}
}

// TestChoiceNeedsALoad has commits with pauses in between, which have no rate: the log
// stays in use.
func TestChoiceNeedsALoad(t *testing.T) {
	var c choice
	now := time.Unix(1000, 0)
	if got := c.commits(&now, 10_000, 2*maxGap, maxGap/100); got != 10_000 {
		t.Errorf("%d of 10000 commits by the log, want all", got)
	}
	// A trial that has begun when the load ends is given up.
	for c.logs() {
		c.commits(&now, 1, 100*time.Microsecond, 100*time.Microsecond)
	}
	c.commits(&now, 3, 0, 100*time.Microsecond)
	now = now.Add(time.Hour)
	c.commits(&now, 1, 0, 100*time.Microsecond)
	if !c.logs() {
		t.Error("a trial without a result is kept")
	}
}

// TestEnter begins commits of several sizes, alone and concurrently.
// Promise: sqlitevfs/log-commits-left
func TestEnter(t *testing.T) {
	needLocks(t)
	l, _ := mustOpen(t, t.TempDir(), Options{})
	defer mustClose(t, l)
	w := wals(t, l.dir, 1)[0]
	w.attach(l)
	enter := func(what string, frames int64, log, measured bool) {
		t.Helper()
		turn := w.wal.Enter(frames)
		if turn.Log != log || (turn.measured) != measured {
			t.Errorf("%s: log %v, measured %v; want %v, %v", what, turn.Log, turn.measured, log, measured)
		}
		w.wal.Leave(turn)
	}
	for range minSample / 2 {
		enter("small and alone", 4<<10, true, true)
	}
	enter("large and alone", 24<<10, false, false)
	l.ways.choice.syncs = true
	enter("small and alone, where a sync is faster", 4<<10, false, true)
	var others []Turn
	for range 8 {
		others = append(others, w.wal.Enter(4<<10))
	}
	for range 8 {
		enter("small with others", 4<<10, true, false)
	}
	enter("large with others", 24<<10, false, false)
	l.opts.NoTrials = true
	enter("small with others, without trials", 4<<10, true, false)
	enter("large with others, without trials", 24<<10, false, false)
	for _, turn := range others {
		w.wal.Leave(turn)
	}
	if n := l.busy.Load(); n != 0 {
		t.Errorf("%d commits are in progress, want 0", n)
	}
}
