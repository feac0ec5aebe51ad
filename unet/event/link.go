// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/watch"
)

// link is what a backend knows of a connection.
type link struct {
	// Of the backends with loops. fd and wakeAt are guarded by the connection's mutex,
	// the rest belongs to the loop.
	fd        int
	wakeAt    time.Time // the loop looks at the timer then, zero for never
	slot      uint32
	gen       uint32
	tid       int  // the thread that armed the receive
	armed     bool // a receive is in flight
	canceling bool // and is about to end
	ending    bool // a cancellation of everything was submitted
	touched   bool // the loop will look at the connection
	drained   bool // Shutdown: all that had arrived was delivered
	drainLeft int  // and how much more of it is read at most, 0 before the first piece
	timerAt   int  // place in the heap of timers, from 1 on
	discard   bool // Shutdown: what still arrives comes too late
	held      held
	watched   watch.Events // epoll: what the descriptor is registered for, 0 for not at all

	// Of the net backend.
	nc                       net.Conn
	cb                       sync.Mutex    // held during callbacks
	wake                     chan struct{} // the reader is to look at the state
	timer                    *time.Timer
	opened                   bool        // OnOpen was called
	exited                   atomic.Bool // a callback has called runtime.Goexit
	gone                     bool        // closed; guarded by the connection's mutex
	drainBy                  time.Time   // Shutdown: nothing more has arrived by then
	drainedBytes, emptyReads int
}

// covers says that the loop looks at the timer no later than at. The caller
// holds the connection's mutex.
func (k *link) covers(at time.Time) bool { return !k.wakeAt.IsZero() && !at.Before(k.wakeAt) }

// held is what had arrived when reading was stopped.
type held struct {
	queue outQueue
	ended bool // after the queue comes the end
	res   int32
}
