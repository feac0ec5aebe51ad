// SPDX-License-Identifier: MIT

package kernelsim

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// tasks are the pending work of the kernel. One goroutine runs them with the kernel's
// lock held, in random order.
type tasks struct {
	mu      *sync.Mutex
	dice    *rand.Rand
	work    *sync.Cond
	list    []task
	stopped bool
}

// task calls tick in each of its steps, and run after the last one.
type task struct {
	steps     int
	tick, run func()
}

// newTasks returns the tasks of a kernel with the given lock.
func newTasks(mu *sync.Mutex, dice *rand.Rand) *tasks {
	return &tasks{mu: mu, dice: dice, work: sync.NewCond(mu)}
}

// run runs the tasks until stop. It releases the lock between two steps.
func (c *tasks) run() {
	for {
		c.mu.Lock()
		for len(c.list) == 0 && !c.stopped {
			c.work.Wait()
		}
		if c.stopped {
			c.mu.Unlock()
			return
		}
		c.step()
		breath := c.dice.IntN(4) == 0
		c.mu.Unlock()
		if breath {
			runtime.Gosched()
		}
	}
}

// step runs one step of one task. The caller holds mu.
func (c *tasks) step() {
	i := c.dice.IntN(len(c.list))
	t := &c.list[i]
	if t.steps > 0 {
		t.steps--
		if t.tick != nil {
			t.tick()
		}
		return
	}
	run := t.run
	last := len(c.list) - 1
	c.list[i] = c.list[last]
	c.list[last] = task{}
	c.list = c.list[:last]
	run()
}

// stop ends run and drops pending tasks. The caller holds the lock.
func (c *tasks) stop() {
	c.stopped = true
	c.work.Broadcast()
}

// isStopped reports whether stop was called. The caller holds the lock.
func (c *tasks) isStopped() bool { return c.stopped }

// spread calls run after a number of steps, and tick, if not nil, in each of them.
// The caller holds the lock.
func (c *tasks) spread(steps int, tick, run func()) {
	c.list = append(c.list, task{steps, tick, run})
	c.work.Signal()
}

// later calls run with the lock held after a time, unless stop is called before. The time is never
// zero: timers that are due at once run concurrently, which in a bubble of package synctest crashes
// the race detector of Go 1.26.
func (c *tasks) later(d time.Duration, run func()) *time.Timer {
	return time.AfterFunc(max(d, 1), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.stopped {
			run()
		}
	})
}
