// SPDX-License-Identifier: MIT

package reactor

import (
	"sync"
	"sync/atomic"
)

// calls runs the callbacks of a loop one after the other, never under a lock.
type calls struct {
	mu      sync.Mutex
	any     atomic.Bool // queue is not empty; written under mu
	queue   []call
	spare   []call // the queue of before, to be used again
	ready   chan struct{}
	started bool
	over    bool // ready is closed
	stopped sync.WaitGroup

	current Event    // of the goroutine that runs them
	dry     []*store // to which it gave buffers back while streams waited for some

	running atomic.Bool
	thread  int    // of a pinned loop
	runner  string // the goroutine
}

// call is what is to be called: fn, or event with what arrived.
type call struct {
	fn    func(Result)
	res   Result
	event func(*Event)
	chunk Chunk
}

func (c *calls) init() { c.ready = make(chan struct{}, 1) }

// own says that the calling goroutine, locked to its thread, will run the
// callbacks.
func (c *calls) own() { c.thread, c.runner = threadID(), goroutineID() }

// add queues a callback; nil means that nobody wants to know.
func (c *calls) add(fn func(Result), res Result) {
	if fn == nil {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, call{fn: fn, res: res})
	c.any.Store(true)
	c.mu.Unlock()
}

// addEvent queues the callback of a stream into provided buffers.
func (c *calls) addEvent(fn func(*Event), res Result, chunk Chunk) {
	c.mu.Lock()
	c.queue = append(c.queue, call{res: res, event: fn, chunk: chunk})
	c.any.Store(true)
	c.mu.Unlock()
}

// kick wakes the goroutine that runs them, if there is anything to run.
func (c *calls) kick() {
	if !c.any.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 && !c.over {
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
}

// waiting reports whether there is anything to run.
func (c *calls) waiting() bool { return c.any.Load() }

// start begins to run the callbacks of a shared loop, once; a pinned loop's
// thread runs its own.
func (c *calls) start(l *loop) {
	if l.opts.Pinned {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.over {
		return
	}
	c.started = true
	named := make(chan struct{})
	c.stopped.Go(func() {
		c.runner = goroutineID()
		close(named)
		for range c.ready {
			c.run()
		}
	})
	<-named
}

// run calls what is queued, and what that queues, and reports whether there was
// anything.
func (c *calls) run() bool {
	any := false
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue, c.spare = c.spare[:0], nil
		c.any.Store(false)
		c.mu.Unlock()
		if len(batch) == 0 {
			c.mu.Lock()
			c.spare = batch
			c.mu.Unlock()
			return any
		}
		any = true
		c.running.Store(true)
		for i := range batch {
			if e := &batch[i]; e.event != nil {
				c.deliver(e)
			} else {
				e.fn(e.res)
			}
		}
		c.refill()
		c.running.Store(false)
		clear(batch)
		c.mu.Lock()
		c.spare = batch[:0]
		c.mu.Unlock()
	}
}

// stop runs what is left and ends the goroutine. Nothing is added any more.
func (c *calls) stop() {
	c.mu.Lock()
	c.over = true
	close(c.ready)
	c.mu.Unlock()
	c.stopped.Wait()
	c.run()
}
