// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/ringside-io/ringside/uring"
)

// ErrClosed is returned by operations on a closed reactor.
var ErrClosed = errors.New("reactor: closed")

// Options configure a reactor; the zero value is the recommended one.
type Options struct {
	// Rings is the number of loops; 0 means GOMAXPROCS at the time of New.
	Rings int
	// Entries is the size of each submission queue; 0 means 256.
	Entries int
	// InFlight bounds the operations that a loop holds at a time; 0 means
	// 4096, at most 32768. Each costs about 200 bytes once it was used.
	InFlight int
}

func (o Options) withDefaults() Options {
	set := func(p *int, def, limit int) {
		if *p <= 0 {
			*p = def
		}
		*p = min(*p, limit)
	}
	set(&o.Rings, runtime.GOMAXPROCS(0), 1<<10)
	set(&o.Entries, 256, 1<<15)
	set(&o.InFlight, 4096, 1<<15)
	return o
}

// Reactor spreads operations over several rings. All methods may be called
// concurrently.
type Reactor struct {
	loops  []*loop
	near   sync.Pool // of *loop: the pool's per-P slots make a loop stay on its P
	turn   atomic.Uint32
	closed atomic.Bool
}

// New opens the rings. The error is that of [uring.Open].
func New(o Options) (*Reactor, error) {
	o = o.withDefaults()
	r := &Reactor{}
	r.near.New = func() any {
		return r.loops[int(r.turn.Add(1))%len(r.loops)]
	}
	for i := range o.Rings {
		var first *uring.Ring
		if i > 0 {
			first = r.loops[0].ring
		}
		l, err := newLoop(o, first)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reactor: %w", err), r.Close())
		}
		r.loops = append(r.loops, l)
	}
	return r, nil
}

// loop returns the loop of the P that the caller runs on, give or take a
// migration: a wrong guess costs a little speed, nothing else.
func (r *Reactor) loop() *loop {
	l := r.near.Get().(*loop)
	r.near.Put(l)
	return l
}

// Result is what the kernel answered: a count, a descriptor or a negative
// errno, and flags.
type Result struct {
	Res   int32
	Flags uring.CQEFlags
}

// Do submits a single-shot operation and waits for its completion. The entry
// is copied; its user data is replaced. buf and keep, which may be nil, stay
// reachable until the completion, and must not be touched by the caller before
// Do returns. bytes is how much the kernel may have to copy or pin during the
// submission, which decides whether the scheduler is told about the system
// call; take the size of the transfer.
//
// The error is ErrClosed, or that of a ring that has failed; an operation that
// fails is a Result with a negative Res.
func (r *Reactor) Do(e *uring.SQE, buf []byte, keep any, bytes int) (Result, error) {
	return r.loop().do(e, buf, keep, bytes)
}

// Idle says whether the calling goroutine's loop has nothing in flight, so
// that a plain system call would be at least as fast as the ring. When it says
// true it counts the caller as being in flight, until [Turn.Done].
func (r *Reactor) Idle() (Turn, bool) {
	l := r.loop()
	if l.busy.CompareAndSwap(0, 1) {
		return Turn{l}, true
	}
	return Turn{}, false
}

// Turn is the right to make a plain call in the place of an idle loop.
type Turn struct{ l *loop }

// Done ends the turn.
func (t Turn) Done() { t.l.leave() }

// Close waits until every operation in flight has completed, then frees the
// rings. Calls of Do that begin later return ErrClosed. The second call
// returns nil at once.
func (r *Reactor) Close() error {
	if r.closed.Swap(true) {
		return nil
	}
	var errs []error
	for _, l := range r.loops {
		errs = append(errs, l.close())
	}
	return errors.Join(errs...)
}

// Stats are counters since the reactor was opened.
type Stats struct {
	Submitted uint64 // operations handed to the kernel
	Completed uint64 // completions reaped
	Enters    uint64 // system calls that submitted
	Retried   uint64 // operations submitted again after a cancellation nobody asked for
	Overflows uint64 // completions that did not find room in a completion queue at once
	InFlight  int    // operations in flight now
}

// Stats returns the sum over all loops.
func (r *Reactor) Stats() Stats {
	var s Stats
	for _, l := range r.loops {
		s.Submitted += l.stats.submitted.Load()
		s.Completed += l.stats.completed.Load()
		s.Enters += l.stats.enters.Load()
		s.Retried += l.stats.retried.Load()
		s.Overflows += uint64(l.stats.overflows.Load())
		s.InFlight += l.table.Held()
	}
	return s
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Submitted: s.Submitted + t.Submitted,
		Completed: s.Completed + t.Completed,
		Enters:    s.Enters + t.Enters,
		Retried:   s.Retried + t.Retried,
		Overflows: s.Overflows + t.Overflows,
		InFlight:  s.InFlight + t.InFlight,
	}
}
