// SPDX-License-Identifier: MIT

package kernelsim

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// Chores are what a simulated kernel has still to do: one goroutine does them with
// the kernel's lock held, in an order that dice decide.
type Chores struct {
	mu      *sync.Mutex
	dice    *rand.Rand
	work    *sync.Cond
	tasks   []task
	stopped bool
}

// task is something to do: tick in each of its steps and, after them, run.
type task struct {
	steps     int
	tick, run func()
}

// NewChores returns those of a kernel with the given lock.
func NewChores(mu *sync.Mutex, dice *rand.Rand) *Chores {
	return &Chores{mu: mu, dice: dice, work: sync.NewCond(mu)}
}

// Run does what is to be done, until Stop. Between two steps others get the lock.
func (c *Chores) Run() {
	for {
		c.mu.Lock()
		for len(c.tasks) == 0 && !c.stopped {
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

// step makes one task go on. The caller holds mu.
func (c *Chores) step() {
	i := c.dice.IntN(len(c.tasks))
	t := &c.tasks[i]
	if t.steps > 0 {
		t.steps--
		if t.tick != nil {
			t.tick()
		}
		return
	}
	run := t.run
	last := len(c.tasks) - 1
	c.tasks[i] = c.tasks[last]
	c.tasks[last] = task{}
	c.tasks = c.tasks[:last]
	run()
}

// Stop ends Run, and what is to be done is left. The caller holds the lock.
func (c *Chores) Stop() {
	c.stopped = true
	c.work.Broadcast()
}

// Stopped reports whether Stop was called. The caller holds the lock.
func (c *Chores) Stopped() bool { return c.stopped }

// Spread calls run after a number of steps, and tick, if not nil, in each of them.
// The caller holds the lock.
func (c *Chores) Spread(steps int, tick, run func()) {
	c.tasks = append(c.tasks, task{steps, tick, run})
	c.work.Signal()
}

// Later calls run with the lock held after a time, unless Stop came before. The time
// is not zero: timers that are due at once run beside each other, which in a bubble of
// package synctest crashes the race detector of Go 1.26.
func (c *Chores) Later(d time.Duration, run func()) *time.Timer {
	return time.AfterFunc(max(d, 1), func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.stopped {
			run()
		}
	})
}
