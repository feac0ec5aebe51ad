// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// loop is one ring with its operations.
type loop struct {
	opts  *Options
	ring  ring
	park  parker
	table *inflight.Table[entry]
	busy  atomic.Int64 // operations, and plain calls in their place

	lastCaller atomic.Uintptr // the stack address of the previous caller, a hint

	released signal       // a slot was released while goroutines wait for one
	waiters  atomic.Int32 // goroutines that wait for a slot
	idle     signal       // the last slot was released while close waits
	closing  atomic.Bool  // no operation may start; written under mu

	mu         sync.Mutex   // the submission side
	leading    bool         // a leader yields and then flushes
	pending    []*uring.SQE // SQEs that the kernel has not taken
	bytes      int          // bytes that the kernel may copy or pin while it takes pending
	failed     error        // why the ring can no longer be used
	refused    atomic.Bool  // SQEs are pending that the kernel refused
	retryTimer bool         // a timer will submit them again
	submits    uint         // calls of submit; see mayGather
	work       []work       // submissions for later
	hasWork    atomic.Bool  // work is not empty; written under mu
	working    bool         // a goroutine is in runWork
	cancels    uint32       // SQEs of users that may have cancelled other operations
	space      *sync.Cond   // with mu: the kernel has taken SQEs
	hasTable   bool         // of registered buffers

	reaping    sync.Mutex // the completion side
	batch      [reapBatch]uring.CQE
	overflowed bool // the last batch found that the CQ had overflowed
	gone       bool // the ring is closed; written under both locks

	callbacks  callbacks
	race       raceModel
	starvation starvation
	stats      counters
}

// newLoop opens a ring and starts the goroutine that reaps when no other goroutine
// does. first is the ring of the first loop, nil for that loop.
func newLoop(o *Options, first ring) (*loop, error) {
	l := &loop{opts: o, released: newSignal(), idle: newSignal()}
	l.space = sync.NewCond(&l.mu)
	l.table = inflight.New(o.InFlight, func(v *entry) { v.done = make(chan struct{}, 1) })
	l.callbacks.init()
	var err error
	if l.ring, l.park, err = o.open(o, first); err != nil {
		return nil, err
	}
	if err := l.park.Start(l.reapParked, l.failParked); err != nil {
		_ = l.ring.Close()
		return nil, err
	}
	l.race.start()
	return l, nil
}

// close ends all operations and frees the ring.
func (l *loop) close() error {
	l.mu.Lock()
	l.closing.Store(true)
	l.mu.Unlock()
	l.released.send() // a goroutine that waits for a slot sees closing, and wakes the next
	l.cancelAll()
	l.awaitIdle()
	err := errors.Join(l.park.Stop(), l.closeRing())
	if l.failure() != nil {
		l.failTaken()
	}
	l.callbacks.stop()
	l.race.stop()
	return errors.Join(l.failure(), err)
}

// awaitIdle waits until no slot is held, or the ring has failed.
func (l *loop) awaitIdle() {
	for l.table.Held() > 0 && l.failure() == nil {
		<-l.idle
	}
}

// closeRing closes the ring. A goroutine that submitted may still want to reap after
// its operation has ended, so closeRing takes both locks and sets gone.
func (l *loop) closeRing() error {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.pending = nil
	clear(l.work) // cancellations of operations that have ended
	l.space.Broadcast()
	defer func() { lastClose.Store(time.Now().UnixNano()) }()
	return l.ring.Close()
}
