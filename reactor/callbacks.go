// SPDX-License-Identifier: MIT

package reactor

import (
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
)

// callbacks runs the callbacks of a loop one after the other, on a separate goroutine
// and without a lock.
type callbacks struct {
	mu      sync.Mutex
	any     atomic.Bool // queue is not empty; written under mu
	queue   []callback
	spare   []callback // the previous queue, to be used again
	ready   chan struct{}
	started bool
	stopped bool // ready is closed
	done    sync.WaitGroup

	goroutine string // that runs them
}

type callback struct {
	fn  func(Result)
	res Result
}

func (c *callbacks) init() { c.ready = make(chan struct{}, 1) }

// add queues a callback. fn may be nil.
func (c *callbacks) add(fn func(Result), res Result) {
	if fn == nil {
		return
	}
	c.mu.Lock()
	c.queue = append(c.queue, callback{fn: fn, res: res})
	c.any.Store(true)
	c.mu.Unlock()
}

// notify wakes the goroutine if a callback is queued.
func (c *callbacks) notify() {
	if !c.any.Load() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.queue) > 0 && !c.stopped {
		select {
		case c.ready <- struct{}{}:
		default:
		}
	}
}

// start starts the goroutine, once.
func (c *callbacks) start() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.started || c.stopped {
		return
	}
	c.started = true
	named := make(chan struct{})
	c.done.Go(func() {
		c.goroutine = goroutineID()
		close(named)
		for range c.ready {
			c.run()
		}
	})
	<-named
}

// run calls the queued callbacks, and those that they queue.
func (c *callbacks) run() {
	for {
		c.mu.Lock()
		batch := c.queue
		c.queue, c.spare = c.spare[:0], nil
		c.any.Store(false)
		c.mu.Unlock()
		for i := range batch {
			batch[i].fn(batch[i].res)
		}
		clear(batch)
		c.mu.Lock()
		c.spare = batch[:0]
		c.mu.Unlock()
		if len(batch) == 0 {
			return
		}
	}
}

// stop runs the remaining callbacks and ends the goroutine. No callback is added any
// more.
func (c *callbacks) stop() {
	c.mu.Lock()
	c.stopped = true
	close(c.ready)
	c.mu.Unlock()
	c.done.Wait()
	c.run()
}

// mayClose panics when the calling goroutine runs the callbacks.
func (c *callbacks) mayClose(goroutine string) {
	c.mu.Lock()
	runner := c.goroutine
	c.mu.Unlock()
	if runner == goroutine {
		panic("reactor: a callback calls Close, which waits for the callbacks")
	}
}

// goroutineID returns the runtime's name of the calling goroutine. It is slow and serves
// to detect misuse only.
func goroutineID() string {
	var buf [64]byte
	head, _, _ := strings.Cut(string(buf[:runtime.Stack(buf[:], false)]), "[")
	return head
}
