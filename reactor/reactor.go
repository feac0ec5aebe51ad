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

// Options configure a reactor. The zero value is the recommended one.
type Options struct {
	// Loops is the number of loops, each with a ring; 0 means GOMAXPROCS at the
	// time of New. Where RLIMIT_MEMLOCK is low there may be fewer, with smaller
	// rings.
	Loops int
	// Entries is the size of each submission queue; 0 means 256.
	Entries int
	// InFlight limits the operations in flight on each loop; 0 means 4096, and the
	// maximum is 32768. A slot takes about 350 bytes after its first use.
	InFlight int
	// Restrict, when not nil, lists the only operations that the rings accept; the
	// kernel ends every other operation with EACCES. An attacker in control of the
	// process cannot use the rings for other operations. The reactor adds ASYNC_CANCEL,
	// which it needs. Measurements showed no cost.
	Restrict []uring.Op
	// Logger receives a message when a ring fails; nil means slog.Default().
	Logger *slog.Logger

	// Trace adds regions of package runtime/trace: "reactor.submit" for each submission
	// and "reactor.reap" for each batch of completions. It gives the goroutines that only
	// reap the label ringside=reactor of package runtime/pprof.
	Trace bool

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

	buffers buffers
}

// New opens the rings. It returns the error of [uring.Open]; package features explains
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
// ends with ErrClosed. Close also waits for an operation that the kernel cannot cancel,
// such as a read from a disk that has started, unless its ring has failed (ErrFailed).
// All callbacks have returned when Close returns. The second call returns nil at once.
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

// Do starts an operation and waits until it has ended. While the loop has
// [Options.InFlight] operations, Do waits for one of them to end. A callback that calls
// Do delays the other callbacks of its loop, and may wait for one of them: use Queue.
func (r *Reactor) Do(op *Op) Result {
	l := r.nearest()
	l.busy.Add(1)
	s, err := l.begin(context.Background(), op)
	if err != nil {
		l.busy.Add(-1)
		return Result{Cause: err}
	}
	<-s.Value.done
	res := s.Value.res
	l.release(s)
	l.busy.Add(-1)
	return res
}

// DoContext is [Reactor.Do] with a context. When ctx ends, DoContext cancels the
// operation and waits until the kernel has ended it, so that the buffer belongs to the
// caller again when DoContext returns. The Err of an operation that was cancelled is
// context.Cause(ctx); an operation that completed first has its result. An operation
// whose ring has failed cannot be cancelled: DoContext waits until it ends, or until
// Close.
func (r *Reactor) DoContext(ctx context.Context, op *Op) Result {
	if ctx.Done() == nil {
		return r.Do(op)
	}
	if ctx.Err() != nil {
		return Result{Cause: context.Cause(ctx)}
	}
	l := r.nearest()
	l.busy.Add(1)
	defer l.busy.Add(-1)
	s, err := l.begin(ctx, op)
	if err != nil {
		return Result{Cause: err}
	}
	select {
	case <-s.Value.done:
	case <-ctx.Done():
		_ = l.cancel(s.ID()) // the operation may have ended meanwhile
		<-s.Value.done
		if v := &s.Value; v.res.Cause == nil && v.res.Res == -int32(syscall.ECANCELED) {
			v.res.Cause = context.Cause(ctx)
		}
	}
	res := s.Value.res
	l.release(s)
	return res
}

// Queue starts an operation and returns without waiting for it. It calls fn once, with
// the result; fn may be nil. Queue never waits: when the loop has [Options.InFlight]
// operations it returns ErrFull and does not call fn.
func (r *Reactor) Queue(op *Op, fn func(Result)) (ID, error) {
	return r.nearest().queue(op, fn, false)
}

// Stream starts a multishot operation and calls fn with each of its events, in order.
// [Result.More] is false for the last event, and only for it, whatever ended the
// stream. An overflow of the completion queue ends a stream too: start it again. Events
// that arrive faster than fn returns are queued without limit. Stream does not wait: when
// the loop has [Options.InFlight] operations it returns ErrFull and does not call fn.
func (r *Reactor) Stream(op *Op, fn func(Result)) (ID, error) {
	return r.nearest().queue(op, fn, true)
}

// Cancel asks the kernel to end an operation early. The callback is still called, with
// ECANCELED, or with the result when the operation completed first. Cancel returns
// ErrNotFound when the operation has ended.
func (r *Reactor) Cancel(id ID) error {
	if id.loop == nil {
		return ErrNotFound
	}
	return id.loop.cancel(id.id)
}

// Turn is a permission to make a plain system call instead of an operation; see
// [Reactor.TryPlain].
type Turn struct{ l *loop }

// TryPlain reports whether a plain blocking system call is better than an operation
// now. This is so when the caller is alone on its loop, so that no other operation
// could share the system call, or when goroutines that compute occupy every P. When
// TryPlain returns true, the caller makes its system call and then calls [Turn.Done].
//
// The caller is alone when the loop has no operation in flight and the previous caller
// was the same goroutine. The second condition is needed because a system call that blocks
// can keep its P: other goroutines that want to read do not run meanwhile, so they have no
// operation in flight.
func (r *Reactor) TryPlain() (Turn, bool) {
	l := r.nearest()
	if l.sameCaller() && l.busy.CompareAndSwap(0, 1) {
		return Turn{l}, true
	}
	if l.starvation.avoids() {
		l.busy.Add(1)
		return Turn{l}, true
	}
	return Turn{}, false
}

// Done ends the turn. On a zero Turn it does nothing.
func (t Turn) Done() {
	if t.l != nil {
		t.l.busy.Add(-1)
	}
}
