// SPDX-License-Identifier: MIT

package event

import (
	"sync"
	"sync/atomic"
	"time"
)

// loop is a listening socket and the connections that it brought. What it does
// with them is the same for every driver. Fields belong to the goroutine in
// driver.run unless they say otherwise.
type loop struct {
	d      driver
	server *Server
	listen listener

	mu    sync.Mutex // guards inbox and tasks
	inbox []*Conn    // somebody changed their state
	tasks []func()
	mail  atomic.Bool // inbox or tasks hold something

	conns   []*Conn // by slot
	free    []uint32
	open    int
	gen     uint32
	mailed  []*Conn // taken out of inbox; those before nextMail are done
	doing   []func()
	again   []*Conn // to be looked at in the next turn
	looking []*Conn // taken out of again; those before nextLook are done
	timers  timerHeap

	nextMail, nextDoing, nextLook int

	retryAt time.Time // when a refused submission is tried again
	leaving bool
	over    bool
	exits   bool   // a callback has called runtime.Goexit
	broken  error  // why the driver cannot be used any more
	scratch []byte // for receiving outside of a ring

	count counters
}

// driver is what a loop waits with and moves data by: a ring, or readiness. But
// for idle and wake, the loop's goroutine calls, and for output, input and end it
// holds the connection's mutex.
type driver interface {
	// base returns the loop.
	base() *loop
	// start opens what is needed; undo closes that of a loop that never ran.
	start() error
	undo() error
	// run serves until the loop is told to stop and its last connection is
	// gone, and frees what start opened. When a callback has ended it by
	// runtime.Goexit it is called again, and goes on.
	run()
	// idle says that a Write from elsewhere may send at once; wake makes the
	// loop read its mail. Anybody may call them.
	idle() bool
	wake()
	// room makes sure that what one connection needs can be asked for.
	room() bool
	// output sends what is pending.
	output(c *Conn)
	// input starts or stops receiving; it says whether what was kept can be
	// given to the handler.
	input(c *Conn) (release bool)
	// end says that nothing of the connection is in flight, and otherwise
	// brings that about.
	end(c *Conn) bool
	// forget is called before the connection's descriptor is closed.
	forget(c *Conn)
	// armAccept starts to accept, unless that was stopped; disarm stops it, by
	// and by: then it calls closeListener.
	armAccept()
	disarm()
}

// serve runs the loop until it has nothing left to do. A callback that calls
// runtime.Goexit ends all functions of the goroutine but those that are deferred:
// here the loop goes on in one of these, on the same thread. What it was about it
// has noted in its fields.
func (l *loop) serve() {
	defer func() {
		if l.exits {
			l.exits = false
			l.serve()
		}
	}()
	l.d.run()
}

// exited implements backend.
func (l *loop) exited(*Conn) { l.exits = true }

// base implements driver.
func (l *loop) base() *loop { return l }

// memory is for what is received outside of a ring.
func (l *loop) memory() []byte {
	if l.scratch == nil {
		l.scratch = make([]byte, l.server.opts.BufferSize)
	}
	return l.scratch
}

// finished says that the loop has nothing left to do, and notes it.
func (l *loop) finished() bool {
	if l.leaving && l.open == 0 && l.listen.closed() {
		l.over = true
	}
	return l.over
}
