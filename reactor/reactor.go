// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// Options configure a reactor. The zero value is the recommended one.
type Options struct {
	// Loops is the number of loops, each with a ring; 0 means GOMAXPROCS at the
	// time of New. Where RLIMIT_MEMLOCK is low there may be fewer, with smaller
	// rings.
	Loops int
	// Entries is the size of each submission queue; 0 means 256.
	Entries int
	// InFlight limits the operations in flight on each loop; 0 means 4096, and
	// the maximum is 32768. A slot takes about 400 bytes once it was used.
	InFlight int
	// Restrict, when not nil, lists the only operations that the rings accept; the
	// kernel ends every other operation with EACCES. An attacker who controls the
	// process cannot use the rings for anything else. ASYNC_CANCEL, which the
	// reactor needs, is added. No cost was measurable.
	Restrict []uring.Op
	// Logger receives a message when a ring fails; nil means slog.Default().
	Logger *slog.Logger

	open opener // set by tests
}

func (o Options) withDefaults() Options {
	set := func(p *int, def, limit int) {
		if *p <= 0 {
			*p = def
		}
		*p = min(*p, limit)
	}
	set(&o.Loops, runtime.GOMAXPROCS(0), 1<<10)
	set(&o.Entries, 256, 1<<15)
	set(&o.InFlight, 4096, 1<<15)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.open == nil {
		o.open = openKernelRing
	}
	return o
}

// Reactor distributes operations over several rings. All methods may be called
// concurrently.
type Reactor struct {
	opts   Options
	loops  []*loop
	near   sync.Pool // of *loop; the pool's per-P storage makes a P keep its loop
	next   atomic.Uint32
	closed atomic.Bool
}

// New opens the rings. The error is that of [uring.Open]; package features explains
// it. Where rings count as locked memory and the limit is reached, New waits up to two
// seconds for the memory of rings that were closed shortly before.
func New(o Options) (*Reactor, error) {
	o = o.withDefaults()
	r := &Reactor{opts: o}
	r.near.New = func() any {
		return r.loops[int(r.next.Add(1))%len(r.loops)]
	}
	for i := range o.Loops {
		var first ring
		if i > 0 {
			first = r.loops[0].ring
		}
		l, err := newLoop(&r.opts, first)
		if i > 0 && errors.Is(err, syscall.ENOMEM) {
			break // fewer rings are better than none
		}
		if errors.Is(err, syscall.ENOMEM) {
			l, err = retryOpen(func() (*loop, error) { return newLoop(&r.opts, first) })
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reactor: %w", err), r.Close())
		}
		r.loops = append(r.loops, l)
	}
	return r, nil
}

// nearest returns the loop of the P that the caller runs on. A goroutine that has just
// changed its P may get another P's loop, which costs a little speed and nothing else.
func (r *Reactor) nearest() *loop {
	l := r.near.Get().(*loop)
	r.near.Put(l)
	return l
}

// Close refuses new operations, cancels the operations in flight, waits until the
// kernel has ended each of them, and frees the rings. An operation that Close cancelled
// ends with ErrClosed. An operation that the kernel cannot cancel, such as a read from
// a disk that has started, is waited for, unless its ring has failed (ErrFailed). All
// callbacks have returned when Close returns. The second call returns nil at once.
// Close panics when a callback calls it.
func (r *Reactor) Close() error {
	me := goroutineID()
	for _, l := range r.loops {
		l.callbacks.mayClose(me)
	}
	if r.closed.Swap(true) {
		return nil
	}
	errs := make([]error, len(r.loops))
	var wg sync.WaitGroup
	for i, l := range r.loops {
		wg.Go(func() { errs[i] = l.close() })
	}
	wg.Wait()
	return errors.Join(errs...)
}
