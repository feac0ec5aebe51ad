// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"sync"
	"testing"
	"time"
)

// session passes rounds of the given number of callers to a policy. Each caller takes the
// given time by one way and by the other. session returns the number of shared rounds.
func session(p *syncPolicy, now *time.Time, callers, turns int, alone, together time.Duration) (shared int) {
	for range turns {
		if !p.sharing && p.wantsTrial(*now) {
			p.start(*now)
		}
		if p.sharing {
			*now = now.Add(together)
			p.addShared(callers, *now)
			p.decide(callers, *now)
			shared++
			continue
		}
		for fd := range callers {
			*now = now.Add(alone / time.Duration(callers))
			p.addAlone(fd, callers, *now)
		}
	}
	return shared
}

func TestPolicyTakesTheFasterWay(t *testing.T) {
	const turns = 20000
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		name            string
		alone, together time.Duration
		least, most     int // shared rounds
	}{
		{"together twice as fast", 1000 * time.Microsecond, 500 * time.Microsecond, turns * 9 / 10, turns},
		{"a little slower", 1000 * time.Microsecond, 1030 * time.Microsecond, 1, turns / 20},
		{"twice as slow", 500 * time.Microsecond, 1000 * time.Microsecond, 1, turns / 20},
	} {
		var p syncPolicy
		got := session(&p, &now, 16, turns, test.alone, test.together)
		if got < test.least || got > test.most {
			t.Errorf("%s: %d of %d rounds together, want %d to %d", test.name, got, turns, test.least, test.most)
		}
	}
}

func TestPolicyFollowsTheLoad(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	session(&p, &now, 16, 1000, 1000*time.Microsecond, 300*time.Microsecond)
	if !p.sharing {
		t.Fatal("the faster way is not used")
	}
	session(&p, &now, 16, 20000, 300*time.Microsecond, 1000*time.Microsecond)
	if p.sharing {
		t.Error("the way that was faster is still used although it is now slower")
	}
}

func TestRoundsWithAbsentCallersEnd(t *testing.T) {
	d := &fakeDisk{}
	g := d.group()
	g.groupTime = time.Hour // only the test ends a wait
	g.policy.start(time.Now())
	g.expected = 16
	expire := func() {
		g.mu.Lock()
		round := g.round
		g.mu.Unlock()
		g.expire(round)
	}
	var wg sync.WaitGroup
	for fd := range minGroup {
		wg.Go(func() {
			if o, err := g.sync(fd, fd); err != nil || !o.shared {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
	g.state(t, func() bool { return len(g.waiting) == minGroup })
	expire()
	wg.Wait()
	for range maxMisses {
		wg.Go(func() {
			if o, err := g.sync(1, 1); err != nil || o.shared {
				t.Errorf("alone: %+v, %v", o, err)
			}
		})
		g.state(t, func() bool { return len(g.waiting) == 1 })
		expire()
		wg.Wait()
	}
	if g.policy.sharing {
		t.Error("a single caller still waits for others")
	}
}

// TestSharingIsTriedEarly uses 16 callers of which two at a time are in a sync, as with two
// processors: enough of them are present for a trial of sharing.
func TestSharingIsTriedEarly(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	syncs := 0
	for ; !p.wantsTrial(now); syncs++ {
		if syncs > 1000 {
			t.Fatal("sharing is not tried")
		}
		now = now.Add(50 * time.Microsecond)
		p.addAlone(syncs%16, 1+syncs%2, now)
	}
	if n := p.active(); n != 16 || syncs > 2*minSyncs {
		t.Errorf("tried after %d syncs, with %d callers", syncs, n)
	}
}

// TestOneCallerDoesNotShare syncs many databases one after the other.
func TestOneCallerDoesNotShare(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	for i := range 10_000 {
		now = now.Add(50 * time.Microsecond)
		if p.addAlone(i%16, 1, now); p.wantsTrial(now) {
			t.Fatal("sharing was tried for one caller")
		}
	}
}

// TestMissedRoundsDelayTheNextTrial uses concurrent callers that never arrive at the same
// time.
func TestMissedRoundsDelayTheNextTrial(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	tries := 0
	for i := range 100_000 { // 5 seconds
		now = now.Add(50 * time.Microsecond)
		if p.addAlone(i%16, 2, now); p.wantsTrial(now) {
			tries++
			p.start(now)
			for range maxMisses {
				p.addMiss(now)
			}
		}
	}
	if tries < 2 || tries > 8 {
		t.Errorf("sharing was tried %d times", tries)
	}
}

// TestOneSlowRoundDoesNotEndSharing makes some rounds take as long as many others.
func TestOneSlowRoundDoesNotEndSharing(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	for i := 0; !p.wantsTrial(now); i++ {
		now = now.Add(100 * time.Microsecond)
		p.addAlone(i%16, 2, now)
	}
	p.start(now)
	for round := range 9 {
		took := 800 * time.Microsecond // half of the time of 16 plain syncs
		if round == 3 {
			took = 4 * time.Millisecond
		}
		now = now.Add(took)
		p.addShared(16, now)
		p.decide(16, now)
	}
	if !p.sharing {
		t.Error("sharing has ended")
	}
}

// TestHopelessTrialEndsAtOnce uses a syncfs that writes much data of other programs.
func TestHopelessTrialEndsAtOnce(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	for i := 0; !p.wantsTrial(now); i++ {
		now = now.Add(100 * time.Microsecond)
		p.addAlone(i%16, 2, now)
	}
	p.start(now)
	for range 3 { // the first two start the measurement
		now = now.Add(8 * time.Millisecond)
		p.addShared(16, now)
		p.decide(16, now)
	}
	if p.sharing {
		t.Error("the trial continues")
	}
}

// TestSettledSharingEnds: another program begins to write while sharing is settled.
func TestSettledSharingEnds(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	for session(&p, &now, 16, 100, time.Millisecond, 300*time.Microsecond); !p.settled || p.keep < time.Second; {
		session(&p, &now, 16, 1, time.Millisecond, 300*time.Microsecond)
	}
	if shared := session(&p, &now, 16, 100, time.Millisecond, 3*time.Millisecond); shared > 20 {
		t.Errorf("%d of 100 rounds shared a syncfs that is three times as slow as plain syncs", shared)
	}
}

// TestIdleTimeIsNotMeasured: callers sync for a time that is too short for a measurement, pause, and
// go on. With the pause in it the rate of plain syncs would be lower than that of the slower syncfs.
func TestIdleTimeIsNotMeasured(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	session(&p, &now, 16, 3, time.Millisecond, 1300*time.Microsecond)
	now = now.Add(40 * time.Millisecond)
	p.idle()
	if session(&p, &now, 16, 100, time.Millisecond, 1300*time.Microsecond); p.won {
		t.Error("a slower syncfs has won")
	}
}

// TestLostTrialsAreRare: the first syncfs of each trial writes much data of another program.
func TestLostTrialsAreRare(t *testing.T) {
	now := time.Unix(1000, 0)
	var p syncPolicy
	start, lost := now, time.Duration(0)
	for range 20000 {
		session(&p, &now, 16, 1, time.Millisecond, time.Millisecond)
		if p.sharing && p.rounds == 1 { // the first round of a trial
			now = now.Add(200 * time.Millisecond)
			lost += 200 * time.Millisecond
		}
	}
	if took := now.Sub(start); lost > took/20 {
		t.Errorf("%v of %v were lost in trials", lost, took)
	}
}
