// SPDX-License-Identifier: MIT

package reactor

import (
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/uring"
)

// op is what a slot of the table holds.
type op struct {
	buf  []byte
	keep any
	done chan struct{} // capacity 1: completing never blocks
	res  Result
	err  error
}

type slot = inflight.Slot[op]

// loop is one ring with its operations.
type loop struct {
	ring  *uring.Ring
	table *inflight.Table[op]
	busy  atomic.Int64 // operations and plain calls in their place

	mu      sync.Mutex // the submission side
	room    sync.Cond  // a slot was released while somebody starved
	starved atomic.Int32
	leading bool          // somebody will flush
	pending []inflight.ID // of the entries not yet taken by the kernel
	bytes   int           // that the kernel may copy while it takes them
	failed  error         // why the ring cannot be used any more
	shut    bool

	reaping sync.Mutex // the completion side

	park  parking
	stats struct {
		submitted, completed, enters, retried atomic.Uint64
		overflows                             atomic.Uint32
	}
}

// newLoop opens a ring that shares the worker threads of first, if not nil.
func newLoop(o Options, first *uring.Ring) (*loop, error) {
	ring, err := uring.Open(&uring.Options{
		Entries:   uint32(o.Entries),
		CQEntries: uint32(max(o.InFlight, o.Entries)), // the kernel wants no fewer
		Clamp:     true,
		SubmitAll: false,
		AttachWQ:  first,
		NoIOWait:  true,
	})
	if err != nil {
		return nil, err
	}
	l := &loop{
		ring:  ring,
		table: inflight.New(o.InFlight, func(v *op) { v.done = make(chan struct{}, 1) }),
	}
	l.room.L = &l.mu
	if err := l.park.start(l); err != nil {
		_ = ring.Close()
		return nil, err
	}
	return l, nil
}

// acquire takes a slot, waiting while the table is full.
func (l *loop) acquire() (*slot, error) {
	if s, ok := l.table.Acquire(); ok {
		return s, nil
	}
	l.starved.Add(1)
	defer l.starved.Add(-1)
	l.mu.Lock()
	defer l.mu.Unlock()
	for {
		if err := l.refuse(); err != nil {
			return nil, err
		}
		if s, ok := l.table.Acquire(); ok {
			return s, nil
		}
		l.room.Wait()
	}
}

// release gives a slot back and with it the references that it held.
func (l *loop) release(s *slot) {
	v := &s.Value
	v.buf, v.keep, v.err, v.res = nil, nil, nil, Result{}
	l.table.Release(s)
	if l.starved.Load() > 0 {
		l.mu.Lock()
		l.room.Broadcast()
		l.mu.Unlock()
	}
}

// leave ends the caller's part in busy.
func (l *loop) leave() { l.busy.Add(-1) }

// refuse says why no operation can start. The caller holds mu.
func (l *loop) refuse() error {
	if l.shut {
		return ErrClosed
	}
	return l.failed
}
