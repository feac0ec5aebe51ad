// SPDX-License-Identifier: MIT

package stress

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/reactor"
)

// brokenSettings draws the settings of a simulated environment whose rings fail
// permanently: from some submission on io_uring_enter returns EBADF, or completions are no
// longer reported.
func brokenSettings(rng *rand.Rand) Settings {
	s := simSettings(rng)
	if how := rng.IntN(3); how < 2 {
		s["fatal"] = pick(rng, 0.0005, 0.005, 0.05)
	} else {
		s["unparked"] = pick(rng, 0.0005, 0.005, 0.05)
	}
	s["files-auto"] = float64(rng.IntN(2))
	return s
}

// mayBreak reports whether rings may fail permanently.
func (w *simEnv) mayBreak() bool { return w.faults.Fatal > 0 || w.faults.Unparked > 0 }

// Broken permits the errors that follow from a failed ring.
func (w *simEnv) Broken(err error) bool {
	if err == nil || !w.mayBreak() {
		return false
	}
	if errors.Is(err, reactor.ErrFailed) {
		return w.k.Failed()
	}
	return w.broken.given.Load() && errors.Is(err, reactor.ErrClosed)
}

// breakage does what a program does about a failed ring: after some time it closes the
// objects that use the ring.
type breakage struct {
	given atomic.Bool // up
	over  chan struct{}
	done  sync.WaitGroup

	routed bool // a descriptor always uses the same ring

	mu     sync.Mutex
	failed map[int32]string // the error of operations on a descriptor
	wrong  []string
}

// watch waits for a ring to fail, until stop is called.
func (b *breakage) watch(w *simEnv) {
	b.over, b.failed = make(chan struct{}), make(map[int32]string)
	b.routed = w.s.Settings.Int("rings") < 2
	b.done.Go(func() {
		for pause := time.Millisecond; !w.k.Failed(); pause = min(2*pause, time.Second) {
			select {
			case <-b.over:
				return
			case <-time.After(pause):
			}
		}
		time.Sleep(50 * time.Millisecond) // meanwhile other operations get the error
		b.given.Store(true)
		for _, r := range []*reactor.Reactor{w.r, w.polls} {
			if err := r.Close(); err != nil && !errors.Is(err, reactor.ErrFailed) {
				b.problem("close what has failed: %v", err)
			}
		}
		runtime.GC() // memory that the kernel still has must not be freed
	})
}

func (b *breakage) stop() {
	if b.over != nil {
		close(b.over)
		b.done.Wait()
	}
}

func (b *breakage) problem(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.wrong) < mostProblems {
		b.wrong = append(b.wrong, fmt.Sprintf(format, args...))
	}
}

// before returns the error of operations on a descriptor: "" while they work, or when the
// descriptor does not always use the same ring.
func (b *breakage) before(op *reactor.Op) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed[op.SQE.Raw().Fd]
}

// after checks the end of an operation that began when operations on its descriptor ended
// with was.
func (b *breakage) after(op *reactor.Op, was string, err error) {
	var why string
	if err != nil {
		why = strings.TrimSuffix(err.Error(), ": "+reactor.ErrTaken.Error())
	}
	switch is := errors.Is(err, reactor.ErrFailed); {
	case is && was != "" && why != was:
		b.problem("operations on %d ended with %q, and now with %q", op.SQE.Raw().Fd, was, why)
	case is && b.routed:
		b.mu.Lock()
		b.failed[op.SQE.Raw().Fd] = why
		b.mu.Unlock()
	case was != "" && !errors.Is(err, reactor.ErrClosed):
		b.problem("operations on %d ended with %q, and now with %v", op.SQE.Raw().Fd, was, err)
	}
}

// witness is an engine that checks that all operations after a failure end with the same
// error.
type witness struct {
	Engine
	w *simEnv
}

func (e *witness) Do(op *reactor.Op) reactor.Result {
	was := e.w.broken.before(op)
	res := e.Engine.Do(op)
	e.w.broken.after(op, was, res.Cause)
	return res
}

func (e *witness) DoContext(ctx context.Context, op *reactor.Op) reactor.Result {
	if ctx.Err() != nil {
		return e.Engine.DoContext(ctx, op)
	}
	was := e.w.broken.before(op)
	res := e.Engine.DoContext(ctx, op)
	if ctx.Err() == nil {
		e.w.broken.after(op, was, res.Cause)
	}
	return res
}
