// SPDX-License-Identifier: MIT

package replica

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestCatchUpGrid: a member that was away until the log no longer had what it lacks fetches the files, and catches up,
// whatever the size of the files, the rate of commits, and the speed of its link. The log keeps 64 entries, so that
// in most cells more is committed during the fetch than that.
//
// Promise: replica/transfer-holds-log
func TestCatchUpGrid(t *testing.T) {
	if *long == 0 {
		t.Skip("takes minutes: -long")
	}
	for _, size := range []int{5, 25, 60} { // MB
		for _, rate := range []int{20, 100, 400} { // commits per second
			for _, link := range []int{2, 10} { // MB/s
				t.Run(fmt.Sprintf("%dMB-%d-%dMBps", size, rate, link), func(t *testing.T) { catchUp(t, size, rate, link<<20) })
			}
		}
	}
}

// catchUp fills a database while a member is away, and returns when the member has caught up beside a writer.
func catchUp(t *testing.T, size, rate, link int) {
	c := newChaos(t, noBug, true, true)
	c.ask(command{Kind: "setup", DB: "one"})
	c.ask(command{Kind: "setup", DB: "two"})
	const away = "c"
	c.kill(away)
	present := chaosIDs[:2]
	for i := range 1 + size {
		c.ask(command{Kind: "fill", DB: "big", Val: 1 << 20, Key: i})
	}
	for n := range 200 { // more than the log keeps
		c.ask(command{Kind: "append", DB: "one", Val: n})
	}
	c.net.slow.Store(away, &pace{rate: link})
	stop := make(chan struct{})
	var over sync.WaitGroup
	written := 0
	over.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(rate))
		defer tick.Stop()
		for n := 1000; ; n++ {
			select {
			case <-stop:
				return
			case <-tick.C:
			}
			if c.node(present[0]).ask(command{Kind: "append", DB: "one", Val: n}, 10*time.Second).Err == "" {
				written++
			}
		}
	})
	begin := time.Now()
	c.start(away, 0)
	limit := 3*time.Duration(size)*time.Second/time.Duration(link>>20) + time.Minute
	for {
		leader := 0
		for _, id := range present {
			leader = max(leader, c.node(id).ask(command{Kind: "applied"}, 10*time.Second).Val)
		}
		r := c.node(away).ask(command{Kind: "applied"}, 10*time.Second)
		if r.Err == "" && leader > 0 && r.Val >= leader-rate { // at most a second behind
			t.Logf("after %v, %d databases fetched", time.Since(begin).Round(time.Millisecond), r.From)
			break
		}
		if time.Since(begin) > limit {
			c.dump()
			t.Fatalf("not within %v: at %d of %d, %d fetched, %s %s", limit, r.Val, leader, r.From, r.Err, r.Detail)
		}
		time.Sleep(100 * time.Millisecond)
	}
	close(stop)
	over.Wait()
	t.Logf("%d commits meanwhile", written)
	c.net.slow.Delete(away)
	for _, w := range c.judge() {
		t.Error(w)
	}
}
