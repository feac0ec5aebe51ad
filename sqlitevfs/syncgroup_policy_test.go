// SPDX-License-Identifier: MIT

package sqlitevfs

import (
	"sync"
	"testing"
	"time"
)

// session feeds a choice with rounds of as many callers, which take as long as
// they are said to by one way and the other, and returns how many syncs were
// done together.
func session(c *choice, now *time.Time, callers, turns int, alone, together time.Duration) (shared int) {
	for range turns {
		if !c.together && c.tryTogether(*now) {
			c.begin()
		}
		if c.together {
			*now = now.Add(together)
			c.shared(callers, *now)
			c.judge(callers, *now)
			shared++
			continue
		}
		for fd := range callers {
			*now = now.Add(alone / time.Duration(callers))
			c.alone(fd, callers, *now)
		}
	}
	return shared
}

func TestChoiceGoesTheFasterWay(t *testing.T) {
	const turns = 20000
	now := time.Unix(1000, 0)
	for _, test := range []struct {
		name            string
		alone, together time.Duration
		least, most     int // rounds that were together
	}{
		{"together twice as fast", 1000 * time.Microsecond, 500 * time.Microsecond, turns * 9 / 10, turns},
		{"a little slower", 1000 * time.Microsecond, 1030 * time.Microsecond, 1, turns / 20},
		{"twice as slow", 500 * time.Microsecond, 1000 * time.Microsecond, 1, turns / 20},
	} {
		var c choice
		got := session(&c, &now, 16, turns, test.alone, test.together)
		if got < test.least || got > test.most {
			t.Errorf("%s: %d of %d rounds together, want %d to %d", test.name, got, turns, test.least, test.most)
		}
	}
}

func TestChoiceFollowsTheLoad(t *testing.T) {
	now := time.Unix(1000, 0)
	var c choice
	session(&c, &now, 16, 1000, 1000*time.Microsecond, 300*time.Microsecond)
	if !c.together {
		t.Fatal("the faster way is not used")
	}
	session(&c, &now, 16, 20000, 300*time.Microsecond, 1000*time.Microsecond)
	if c.together {
		t.Error("it is used although it is the slower one now")
	}
}

func TestNobodyWaitsForThoseWhoWentAway(t *testing.T) {
	d := &fakeDisk{}
	g := d.group()
	g.took = time.Hour // nobody loses patience but by the test
	g.choice.begin()
	g.crew = 16
	hurry := func() {
		g.mu.Lock()
		round := g.round
		g.mu.Unlock()
		g.late(round)
	}
	var wg sync.WaitGroup
	for fd := range few {
		wg.Go(func() {
			if o, err := g.sync(fd, fd); err != nil || !o.shared {
				t.Errorf("%+v, %v", o, err)
			}
		})
	}
	g.state(t, func() bool { return len(g.waiting) == few })
	hurry()
	wg.Wait()
	for range misses {
		wg.Go(func() {
			if o, err := g.sync(1, 1); err != nil || o.shared {
				t.Errorf("alone: %+v, %v", o, err)
			}
		})
		g.state(t, func() bool { return len(g.waiting) == 1 })
		hurry()
		wg.Wait()
	}
	if g.choice.together {
		t.Error("one who is alone goes on waiting for others")
	}
}

// TestChoiceIsTriedEarly has 16 callers of which two at a time are in a sync, as with two
// processors: enough of them are there for sharing to be tried.
func TestChoiceIsTriedEarly(t *testing.T) {
	now := time.Unix(1000, 0)
	var c choice
	syncs := 0
	for ; !c.tryTogether(now); syncs++ {
		if syncs > 1000 {
			t.Fatal("sharing is not tried")
		}
		now = now.Add(50 * time.Microsecond)
		c.alone(syncs%16, 1+syncs%2, now)
	}
	if n := c.crowd(); n != 16 || syncs > 2*sample {
		t.Errorf("tried after %d syncs, with %d callers", syncs, n)
	}
}

// TestOneCallerIsNoCrowd goes through many databases one after the other.
func TestOneCallerIsNoCrowd(t *testing.T) {
	now := time.Unix(1000, 0)
	var c choice
	for i := range 10_000 {
		now = now.Add(50 * time.Microsecond)
		if c.alone(i%16, 1, now); c.tryTogether(now) {
			t.Fatal("sharing is tried for one caller")
		}
	}
}

// TestMissedRoundsAreTriedMoreSeldom has callers that look like a crowd and do not come
// at the same time.
func TestMissedRoundsAreTriedMoreSeldom(t *testing.T) {
	now := time.Unix(1000, 0)
	var c choice
	tries := 0
	for i := range 100_000 { // 5 seconds
		now = now.Add(50 * time.Microsecond)
		if c.alone(i%16, 2, now); c.tryTogether(now) {
			tries++
			c.begin()
			for range misses {
				c.missed(now)
			}
		}
	}
	if tries < 2 || tries > 8 {
		t.Errorf("tried %d times", tries)
	}
}

// TestOneSlowRoundIsNoDefeat has a round that takes as long as many, now and then.
func TestOneSlowRoundIsNoDefeat(t *testing.T) {
	now := time.Unix(1000, 0)
	var c choice
	for i := 0; !c.tryTogether(now); i++ {
		now = now.Add(100 * time.Microsecond)
		c.alone(i%16, 2, now)
	}
	c.begin()
	for round := range 9 {
		took := 800 * time.Microsecond // half of what 16 plain syncs take
		if round == 3 {
			took = 6 * time.Millisecond
		}
		now = now.Add(took)
		c.shared(16, now)
		c.judge(16, now)
	}
	if !c.together {
		t.Error("sharing was given up")
	}
}
