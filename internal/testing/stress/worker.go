// SPDX-License-Identifier: MIT

package stress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

// slots is how many files, connections and watches a worker may have at a time.
// mostBlocks is how many blocks one transfer moves at most.
const (
	slots      = 3
	mostBlocks = 8
)

// worker is a goroutine that runs steps.
type worker struct {
	p      *runner
	number int
	step   Step

	files   [slots]*opened
	conns   [slots]*link
	watches [slots]Watch
	pipe    *stream
	records int
	spare   [][]byte
	out     []byte // the bytes that were sent last
	err     error  // of the last transfer of a file
}

func (a *worker) run(steps []Step) {
	for _, a.step = range steps {
		if a.p.stop.Load() {
			break
		}
		a.step.verb.run(a, a.step.args)
	}
	a.leave()
}

// judgeSpare looks for buffers that were written to after their last use.
func (a *worker) judgeSpare() {
	for _, p := range a.spare {
		if p = p[:cap(p)]; !untouched(p) {
			a.p.problem("worker %d: a buffer was written to after the end of its operation: %x", a.number, p)
		}
	}
}

// leave closes the worker's open objects.
func (a *worker) leave() {
	for i := range slots {
		a.closeFile(i)
		a.hangUp(i)
		a.unwatch(i)
	}
	if a.pipe != nil {
		a.check("close the pipe", a.pipe.Close())
	}
}

// problem records that the step failed.
func (a *worker) problem(format string, args ...any) {
	a.p.problem("worker %d: %v: %s", a.number, a.step, fmt.Sprintf(format, args...))
}

// check records an error that the environment does not tolerate.
func (a *worker) check(what string, err error) {
	if err != nil && !a.p.w.Broken(err) {
		a.problem("%s: %v", what, err)
	}
}

// refused records that an object cannot be opened, unless the environment may lack
// resources.
func (a *worker) refused(what string, err error) {
	if !a.p.w.Tolerates(err) && !a.p.w.Broken(err) {
		a.problem("%s: %v", what, err)
	}
}

// done counts operations.
func (a *worker) done(n int) { a.p.ops.Add(int64(n)) }

const poison = 0xa5

// poisoned is the content of unused memory.
var poisoned = bytes.Repeat([]byte{poison}, mostBlocks*Block)

// buffer returns memory that nothing else may write to. It reuses the memory of earlier
// transfers at once.
func (a *worker) buffer(n int) []byte {
	last := len(a.spare) - 1
	if last < 0 || cap(a.spare[last]) < n {
		return make([]byte, n, max(n, mostBlocks*Block))
	}
	p := a.spare[last][:cap(a.spare[last])]
	a.spare = a.spare[:last]
	if !untouched(p) {
		a.problem("a buffer was written to after the end of its operation: %x", p)
	}
	return p[:n]
}

// let recycles the buffer of an operation that ended with err, unless the kernel may still
// use it.
func (a *worker) let(p []byte, err error) {
	if !taken(err) {
		a.recycle(p)
	}
}

// taken reports whether the kernel may still execute an operation that ended with err.
func taken(err error) bool { return errors.Is(err, reactor.ErrTaken) }

// recycle ends the use of a buffer.
func (a *worker) recycle(p []byte) {
	p = p[:cap(p)]
	for rest := p; len(rest) > 0; {
		rest = rest[copy(rest, poisoned):]
	}
	a.spare = append(a.spare, p)
}

// untouched reports whether the returned memory was not written to.
func untouched(p []byte) bool {
	for len(p) > 0 {
		n := min(len(p), len(poisoned))
		if !bytes.Equal(p[:n], poisoned[:n]) {
			return false
		}
		p = p[n:]
	}
	return true
}

// Ways to start an operation, and to end it early.
const (
	wayPlain   = iota
	wayQueue   // with a callback
	wayContext // a context ends
	wayCancel  // queued and cancelled
	ways
)

// errChanged is the cause of contexts that workers end.
var errChanged = errors.New("changed my mind")

// cancelled returns a context that ends after a while.
func cancelled(after int) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stop := later(after, func() { cancel(errChanged) })
	return ctx, func() {
		if after == 0 {
			<-ctx.Done()
		}
		stop()
		cancel(nil)
	}
}

// later calls f after a while, unless stop is called before. A timer that is due at once
// would run on the thread that makes it, concurrently with others of the same bubble of
// package synctest. They would share one context of the race detector, and Go 1.26
// crashes.
func later(after int, f func()) (stop func()) {
	if after == 0 {
		go f()
		return func() {}
	}
	timer := time.AfterFunc(micros(after), f)
	return func() { timer.Stop() }
}

func micros(n int) time.Duration { return time.Duration(n) * time.Microsecond }

// perform executes an operation and checks its end. It returns false if the operation
// ended without a result.
func (a *worker) perform(op *reactor.Op, way, after int) (reactor.Result, bool) {
	var res reactor.Result
	switch way {
	case wayContext:
		ctx, stop := cancelled(after)
		res = a.p.w.Engine().DoContext(ctx, op)
		stop()
	case wayQueue, wayCancel:
		res = a.queue(op, way, after)
	default:
		res = a.p.w.Engine().Do(op)
	}
	a.done(1)
	if op.SQE.Raw().Opcode == uint8(uring.OpWrite) && res.Cause == nil && res.Errno() == syscall.EINTR {
		return res, false // a write must not be repeated after that
	}
	return res, a.ended(res, way)
}

// queue starts an operation with a callback and waits for it.
func (a *worker) queue(op *reactor.Op, way, after int) reactor.Result {
	e := a.p.w.Engine()
	results := make(chan reactor.Result, 1)
	id, err := a.enqueue(op, func(res reactor.Result) { results <- res })
	if err != nil {
		return reactor.Result{Cause: err}
	}
	if way == wayCancel {
		defer later(after, func() {
			if err := e.Cancel(id); err != nil && !errors.Is(err, reactor.ErrNotFound) && !a.p.w.Broken(err) {
				a.p.problem("worker %d: cancel: %v", a.number, err)
			}
		})()
	}
	return <-results
}

// enqueue queues an operation. While there is no room it retries: the engine does not
// report when there is room again.
func (a *worker) enqueue(op *reactor.Op, fn func(reactor.Result)) (reactor.ID, error) {
	var calls atomic.Int32
	step := a.step
	once := func(res reactor.Result) {
		if calls.Add(1) > 1 {
			a.p.problem("worker %d: %v: the callback was called again, with %+v", a.number, step, res)
			return
		}
		fn(res)
	}
	for pause := time.Microsecond; ; pause = min(2*pause, time.Second) {
		if id, err := a.p.w.Engine().Queue(op, once); !errors.Is(err, reactor.ErrFull) {
			return id, err
		}
		time.Sleep(pause)
	}
}

// ended checks the end of an operation and reports whether it has a result.
func (a *worker) ended(res reactor.Result, way int) bool {
	errno := res.Errno()
	switch {
	case res.Cause == nil && errno == 0:
		return true
	case way == wayContext && errors.Is(res.Cause, errChanged):
	case way == wayCancel && errno == syscall.ECANCELED:
	case res.Cause == nil && a.p.w.Tolerates(errno):
	case a.p.w.Broken(res.Cause):
	default:
		a.problem("ended with %+v (%v)", res, errno)
	}
	return false
}
