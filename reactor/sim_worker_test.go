// SPDX-License-Identifier: MIT

package reactor

import (
	"bytes"
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"
)

// worker is a goroutine that uses the reactor at random.
type worker struct {
	*environment
	rng    *rand.Rand
	region int    // where the worker may write
	model  []byte // what the file must hold there
	spare  [][]byte
	mine   []*queuedOp

	cancellers sync.WaitGroup
}

// queuedOp is an operation that was queued.
type queuedOp struct {
	*simOp
	id   ID
	wet  bool // it ends without a cancellation
	done chan struct{}
}

func (a *worker) run() {
	for range a.steps {
		if a.rng.IntN(8) == 0 {
			a.dawdle(a.rng)
		}
		a.act()
	}
	for _, q := range a.mine {
		<-q.done
	}
	a.cancellers.Wait()
}

// cancelSome cancels an operation some time later.
func (a *worker) cancelSome(q *queuedOp) {
	rng := rand.New(rand.NewPCG(a.rng.Uint64(), 0))
	a.cancellers.Go(func() {
		a.dawdle(rng)
		a.cancel(q)
	})
}

func (a *worker) act() {
	switch a.rng.IntN(13) {
	case 0, 1, 2, 3:
		a.do()
	case 4, 5:
		a.doContext()
	case 6, 7, 8:
		a.queue(a.someOp(), true)
	case 9, 10:
		a.queueDry()
	case 11:
		a.stream()
	case 12:
		if len(a.mine) > 0 {
			a.cancel(a.mine[a.rng.IntN(len(a.mine))])
		}
	}
}

// buffer returns a buffer that the kernel does not have.
func (a *worker) buffer() []byte {
	n := 1 + a.rng.IntN(100)
	if last := len(a.spare) - 1; last >= 0 {
		p := a.spare[last]
		a.spare = a.spare[:last]
		if bytes.Count(p, []byte{pattern0}) != len(p) {
			a.errorf("a buffer was written to while it was free: %x", p)
		}
		return p[:n]
	}
	return make([]byte, n, 100)
}

// recycle makes a buffer available to the next operation at once, filled with other bytes.
func (a *worker) recycle(p []byte) {
	if p == nil {
		return
	}
	p = p[:cap(p)]
	fill(p)
	a.spare = append(a.spare, p)
}

// someOp returns an operation that ends without a cancellation.
func (a *worker) someOp() *simOp {
	o := a.newOp()
	switch a.rng.IntN(8) {
	case 0:
		return o.nop()
	case 1:
		return o.timer(time.Duration(a.rng.IntN(1_000_000)))
	case 2:
		return o.poll(pick(a.rng, a.wet...), false)
	case 3, 4:
		return o.read(pick(a.rng, a.wet...), a.buffer(), 0)
	default:
		return o.read(a.file, a.buffer(), int64(a.rng.IntN(simFile+20)))
	}
}

func (a *worker) someOpOr(other bool, make func() *simOp) *simOp {
	if other {
		return make()
	}
	return a.someOp()
}

// aDryRead returns an operation that ends only when it is cancelled.
func (a *worker) aDryRead() *simOp {
	return a.newOp().read(pick(a.rng, a.dry...), a.buffer(), 0)
}

func (a *worker) aWrite() *simOp {
	off := a.rng.IntN(simRegion)
	p := a.buffer()
	p = p[:min(len(p), simRegion-off)]
	return a.newOp().write(a.scratch, p, int64(a.region+off))
}

// done records the result of an operation.
func (a *worker) finished(o *simOp, res Result) {
	free := o.ends(res)
	if o.want != nil {
		if out := a.k.Result(o.tag); out.Res > 0 && out.Ended > 0 {
			copy(a.model[o.off-int64(a.region):], o.want[:out.Res])
		}
	}
	if free {
		a.recycle(o.buf)
	}
}

func (a *worker) do() {
	o := a.someOpOr(a.rng.IntN(3) == 0, a.aWrite)
	if a.ending != whenDone && a.rng.IntN(8) == 0 {
		a.recycle(o.buf)
		o = a.aDryRead() // until Close
	}
	a.finished(o, a.r.Do(&o.op))
}

func (a *worker) doContext() {
	cause := errors.New("changed my mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	o := a.someOpOr(a.rng.IntN(2) == 0, a.aDryRead)
	o.cause = cause
	end := func() { o.asked.Store(true); cancel(cause) }
	rng := rand.New(rand.NewPCG(a.rng.Uint64(), 0))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		a.dawdle(rng)
		end()
	}()
	a.finished(o, a.r.DoContext(ctx, &o.op))
	<-ended
}

// queue queues an operation whose callback may queue others, or cancel some.
func (a *worker) queue(o *simOp, wet bool) {
	q := &queuedOp{simOp: o, wet: wet, done: make(chan struct{})}
	rng := rand.New(rand.NewPCG(a.rng.Uint64(), 0))
	var victim *queuedOp
	if len(a.mine) > 0 {
		victim = a.mine[a.rng.IntN(len(a.mine))]
	}
	fn := func(res Result) {
		a.callback(func() {
			if o.ends(res) {
				a.keepBuffer(o.buf)
			}
			defer close(q.done) // the receiver then has all the others
			switch rng.IntN(4) {
			case 0:
				a.again(rng, 1+rng.IntN(5))
			case 1:
				if victim != nil {
					a.cancel(victim)
				}
			}
			if rng.IntN(4) == 0 {
				runtime.Gosched()
			}
		})
	}
	var err error
	if q.id, err = a.r.Queue(&o.op, fn); !a.started(o, err) {
		a.recycle(o.buf)
		return
	}
	a.mine = append(a.mine, q)
	if !wet || a.rng.IntN(4) == 0 {
		a.cancelSome(q)
	}
}

// started checks the result of Queue.
func (w *environment) started(o *simOp, err error) bool {
	switch {
	case err == nil:
		return true
	case errors.Is(err, ErrFull) && w.opts.InFlight < 4096:
	case errors.Is(err, ErrClosed) && w.closing.Load():
	case w.k.Failed():
	default:
		w.errorf("queue: %v", err)
	}
	if out := w.k.Result(o.tag); out.Submitted != 0 {
		w.errorf("Queue returned %v, but the kernel has seen the operation", err)
	}
	return false
}

// again queues operations from a callback.
func (w *environment) again(rng *rand.Rand, n int) {
	for range n {
		o := w.newOp()
		if rng.IntN(2) == 0 {
			o.nop()
		} else {
			o.read(w.file, make([]byte, 1+rng.IntN(50)), int64(rng.IntN(simFile)))
		}
		w.queued.Add(1)
		rng := rand.New(rand.NewPCG(rng.Uint64(), 0)) // for the callback, which may run at once
		_, err := w.r.Queue(&o.op, func(res Result) {
			w.callback(func() {
				if o.ends(res) {
					w.keepBuffer(o.buf)
				}
				if rng.IntN(3) == 0 {
					w.again(rng, 1)
				}
			})
			w.queued.Done()
		})
		if !w.started(o, err) {
			w.queued.Done()
		}
	}
}

// queueDry queues an operation that ends only when it is cancelled.
func (a *worker) queueDry() {
	a.queue(a.aDryRead(), false)
}

func (a *worker) stream() {
	o := a.newOp().poll(pick(a.rng, a.wet...), true)
	q := &queuedOp{simOp: o, done: make(chan struct{})}
	id, err := a.r.Stream(&o.op, func(res Result) {
		a.callback(func() {
			o.event(res)
			if !res.More() {
				close(q.done)
			}
		})
	})
	if q.id = id; a.started(o, err) {
		a.mine = append(a.mine, q)
		a.cancelSome(q)
	}
}

// cancel cancels one of the worker's operations.
func (w *environment) cancel(q *queuedOp) {
	q.asked.Store(true)
	err := w.r.Cancel(q.id)
	if err != nil && !errors.Is(err, ErrNotFound) && !w.k.Failed() {
		w.errorf("cancel: %v", err)
	}
}
