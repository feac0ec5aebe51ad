// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// Options configure a reactor; the zero value is the recommended one for files.
type Options struct {
	// Pinned makes the loops pinned ones; see the package comment. (6.1)
	Pinned bool
	// Loops is how many there are; 0 means GOMAXPROCS at the time of New. Where
	// RLIMIT_MEMLOCK is low there may be fewer, and smaller ones.
	Loops int
	// Entries is the size of each submission queue; 0 means 256.
	Entries int
	// InFlight bounds the operations that a loop holds at a time; 0 means
	// 4096, at most 32768. Each costs about 400 bytes once it was used.
	InFlight int
	// Granule, when positive, routes operations by descriptor: runs of that
	// many descriptors share a loop, so that few descriptors stay on few
	// rings and those of one descriptor on one. 0 routes to the loop of the P
	// that the caller runs on.
	Granule int
	// Files is how many slots a table of registered files has, which is made
	// at the first [Reactor.RegisterFile]; 0 means 1024, at most 32768.
	Files int
	// SQPoll lets a kernel thread submit, shared by all loops of this reactor;
	// see the package comment. It needs a core to spare and excludes Pinned.
	// (5.13)
	SQPoll bool
	// Restrict, when not nil, names all that the rings may do, so that who gains
	// control of the process cannot have the kernel do other things through
	// them: another operation ends with EACCES. Reads and writes include those
	// of a BufferPool; what the reactor needs itself is added (ASYNC_CANCEL,
	// LINK_TIMEOUT, NOP, and with Pinned READ), and files, buffers and groups can
	// be registered. It costs nothing that could be measured.
	Restrict []uring.Op
	// Logger is told about the failure of a ring; nil means slog.Default().
	Logger *slog.Logger

	open opener // of tests
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
	o.Entries = max(o.Entries, 2) // an operation with a deadline takes two
	set(&o.InFlight, 4096, 1<<15)
	set(&o.Files, 1<<10, 1<<15)
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.open == nil {
		o.open = openKernelRing
	}
	return o
}

// Reactor spreads operations over several rings. All methods may be called
// concurrently.
type Reactor struct {
	opts   Options
	loops  []*loop
	near   sync.Pool // of *loop: the pool's per-P places make a loop stay on its P
	turn   atomic.Uint32
	closed atomic.Bool

	groupIDs   groupIDs
	files      files
	pools      pools
	background background
}

// New opens the rings. The error is that of [uring.Open]; see package features
// for its meaning. Where rings count as locked memory and that is short, New
// waits for that of rings which were closed a moment ago, two seconds at most.
func New(o Options) (*Reactor, error) {
	o = o.withDefaults()
	if o.Pinned && o.SQPoll {
		return nil, errors.New("reactor: Pinned and SQPoll exclude each other: either the locked thread submits or the kernel's")
	}
	r := &Reactor{opts: o}
	r.pools.r = r
	r.near.New = func() any {
		return r.loops[int(r.turn.Add(1))%len(r.loops)]
	}
	for i := range o.Loops {
		var first ring
		if i > 0 {
			first = r.loops[0].ring
		}
		l, err := newLoop(&r.opts, i, first)
		if i > 0 && errors.Is(err, syscall.ENOMEM) {
			break // fewer rings are better than none
		}
		if errors.Is(err, syscall.ENOMEM) {
			l, err = settle(func() (*loop, error) { return newLoop(&r.opts, i, first) })
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("reactor: %w", err), r.Close())
		}
		r.loops = append(r.loops, l)
	}
	return r, nil
}

// loop returns the loop of the P that the caller runs on, give or take a
// migration: a wrong guess costs a little speed, nothing else.
func (r *Reactor) nearest() *loop {
	l := r.near.Get().(*loop)
	r.near.Put(l)
	return l
}

// route returns the loop for an operation.
func (r *Reactor) route(op *Op) *loop {
	if g := r.opts.Granule; g > 0 && op.SQE.Raw().Fd >= 0 {
		return r.loops[int(op.SQE.Raw().Fd)/g%len(r.loops)]
	}
	return r.nearest()
}

// Run waits until ctx is done and then closes the reactor. It is a
// convenience for programs that run their parts side by side; a reactor works
// without it.
func (r *Reactor) Run(ctx context.Context) error {
	<-ctx.Done()
	return r.Close()
}

// Drain refuses new operations and waits until those in flight have ended, or
// until ctx is done, whose cause it then returns. When a ring fails it returns
// why. Close still has to be called. A callback must not call it.
func (r *Reactor) Drain(ctx context.Context) error {
	for _, l := range r.loops {
		l.mayWait()
		l.shutDoor()
	}
	for _, l := range r.loops {
		if err := l.drain(ctx); err != nil {
			return err
		}
	}
	return nil
}

// Close refuses new operations, cancels those in flight, waits for the kernel
// to end each of them, and frees the rings. What was cancelled so ends with
// ErrClosed. An operation that cannot be cancelled, such as a read from a disk
// that has started, is waited for, unless the ring has failed (ErrFailed). All
// callbacks have returned when Close does. The second call returns nil at once.
// A callback must not call Close, which panics then.
func (r *Reactor) Close() error {
	me := goroutineID()
	for _, l := range r.loops {
		l.mayClose(me)
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
	r.background.wait()
	return errors.Join(append(errs, r.pools.close())...)
}
