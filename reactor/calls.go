// SPDX-License-Identifier: MIT

package reactor

import "sync"

// calls runs the callbacks of a loop one after the other, never under a lock.
type calls struct {
	mu      sync.Mutex
	queue   []call
	spare   []call // the queue of before, to be used again
	ready   chan struct{}
	started bool
	stopped sync.WaitGroup
}

type call struct {
	fn  func(Result)
	res Result
}

func (c *calls) init() { c.ready = make(chan struct{}, 1) }

// add queues a callback; nil means that nobody wants to know.
func (c *calls) add(fn func(Result), res Result) {
	if fn == nil {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, call{fn, res})
	c.mu.Unlock()
}

// kick wakes the goroutine that runs them, if there is anything to run.
func (c *calls) kick() {
	if c.waiting() {
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
}

// waiting says whether there is anything to run.
func (c *calls) waiting() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.queue) > 0
}

// start begins to run the callbacks of a shared loop, once; a pinned loop's
// thread runs its own.
func (c *calls) start(l *loop) {
	if l.opts.Pinned {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started {
		return
	}
	c.started = true
	c.stopped.Go(func() {
		for range c.ready {
			c.run()
		}
	})
}

// run calls what is queued, and what that queues, and says whether there was
// anything.
func (c *calls) run() bool {
	any := false
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue, c.spare = c.spare[:0], nil
		c.mu.Unlock()
		if len(batch) == 0 {
			c.mu.Lock()
			c.spare = batch
			c.mu.Unlock()
			return any
		}
		any = true
		for i := range batch {
			batch[i].fn(batch[i].res)
		}
		clear(batch)
		c.mu.Lock()
		c.spare = batch[:0]
		c.mu.Unlock()
	}
}

// stop runs what is left and ends the goroutine.
func (c *calls) stop() {
	c.mu.Lock()
	started := c.started
	c.started = true // nobody may start it any more
	c.mu.Unlock()
	close(c.ready)
	c.stopped.Wait()
	if !started {
		return
	}
	c.run()
}
