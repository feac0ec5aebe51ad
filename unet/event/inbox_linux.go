// SPDX-License-Identifier: MIT

package event

import (
	"net"
)

// driver waits and moves data for a loop, by a ring or by readiness. Any goroutine may
// call idle and wake; only the loop's goroutine calls the other methods. For output,
// input, end and awaitWritable it holds the connection's mutex.
type driver interface {
	// base returns the loop.
	base() *loop
	// start opens the driver's resources; undo closes the resources of a loop that never
	// ran.
	start() error
	undo() error
	// run serves until the loop is told to stop and its last connection is
	// closed, and frees the driver's resources. When a callback has ended it by
	// runtime.Goexit, it is called again and continues.
	run()
	// idle reports whether a Write from another goroutine may send at once; wake
	// makes the loop process its inbox.
	idle() bool
	wake()
	// ensureSpace reports whether there are enough SQEs to process one connection,
	// and submits pending ones if not.
	ensureSpace() bool
	// output sends the pending bytes.
	output(c *Conn)
	// input starts or stops receiving, and reports whether kept data can be given
	// to the handler.
	input(c *Conn) (release bool)
	// end cancels the operations of the connection that are in flight, and reports
	// whether there are none.
	end(c *Conn) bool
	// awaitWritable makes the loop process the connection when its socket has room.
	awaitWritable(c *Conn)
	// forget is called before the connection's descriptor is closed.
	forget(c *Conn)
	// armAccept starts accepting, unless that was stopped. disarm stops it and calls
	// closeListener when it has stopped.
	armAccept()
	disarm()
	// openPackets prepares for datagram sockets. packetInput starts or stops receiving,
	// and waits for room when a socket is blocked. endPackets cancels the operations of
	// the socket that are in flight, and reports whether there are none.
	openPackets() error
	packetInput(s *loopSocket, want bool)
	endPackets(s *loopSocket) bool
}

// batch is a list that is being processed. If a callback interrupts that by
// runtime.Goexit, the rest is still there when the loop continues.
type batch[T any] struct {
	items []T
	next  int // the items before it are done
}

func (b *batch[T]) empty() bool { return b.next == len(b.items) }

// swap takes over a list, and returns an empty one in its place. The batch is empty.
func (b *batch[T]) swap(list []T) []T {
	unused := b.items[:0]
	b.items, b.next = list, 0
	return unused
}

// pop returns the next item. A closed connection must not be kept alive, so the batch
// forgets it.
func (b *batch[T]) pop() T {
	var none T
	item := b.items[b.next]
	b.items[b.next] = none
	b.next++
	return item
}

// enroll adds a connection to the arrivals.
func (l *loop) enroll(c *Conn) error {
	l.mu.Lock()
	if l.closed || l.server.leaving.Load() {
		l.mu.Unlock()
		return net.ErrClosed
	}
	l.arrivals = append(l.arrivals, c)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
	return nil
}

// notify implements backend.
func (l *loop) notify(c *Conn) {
	l.mu.Lock()
	l.inbox = append(l.inbox, c)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// do implements backend.
func (l *loop) do(c *Conn, f func()) {
	if c.isClosed() {
		return
	}
	l.post(func() {
		if !c.isClosed() {
			c.run(f)
		}
	})
}

// post makes the loop call a function. A loop that has ended does not call it.
func (l *loop) post(f func()) {
	l.mu.Lock()
	l.tasks = append(l.tasks, f)
	first := !l.hasInput.Swap(true)
	l.mu.Unlock()
	if first {
		l.d.wake()
	}
}

// markDirty makes the loop process a connection in this turn or the next.
func (l *loop) markDirty(c *Conn) {
	if !c.bstate.marked {
		c.bstate.marked = true
		l.dirty = append(l.dirty, c)
	}
}
