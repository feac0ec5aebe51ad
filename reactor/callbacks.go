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
	ready   chan struct{}
	started bool
	stopped bool // ready is closed
	done    sync.WaitGroup

	goroutine string // that runs them

	// Only that goroutine uses these.
	batch []callback // taken out of queue; those before next were called
	next  int
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
	c.done.Go(c.serve)
}

// serve is the goroutine. If a callback ends it by runtime.Goexit, another goroutine
// continues with the next callback.
func (c *callbacks) serve() {
	ended := false
	defer func() {
		if ended {
			return
		}
		if x := recover(); x != nil {
			panic(x) // the process ends
		}
		c.done.Go(c.serve)
	}()
	c.mu.Lock()
	c.goroutine = goroutineID()
	c.mu.Unlock()
	c.run()
	for range c.ready {
		c.run()
	}
	c.run()
	ended = true
}

// run calls the queued callbacks, and those that they queue.
func (c *callbacks) run() {
	for {
		for c.next < len(c.batch) {
			next := c.batch[c.next]
			c.batch[c.next] = callback{}
			c.next++
			next.fn(next.res)
		}
		c.mu.Lock()
		c.batch, c.queue, c.next = c.queue, c.batch[:0], 0
		c.any.Store(false)
		c.mu.Unlock()
		if len(c.batch) == 0 {
			return
		}
	}
}

// stop runs the remaining callbacks and ends the goroutine. No callback is added after
// that.
func (c *callbacks) stop() {
	c.mu.Lock()
	c.stopped = true
	close(c.ready)
	c.mu.Unlock()
	c.done.Wait()
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
