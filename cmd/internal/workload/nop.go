// SPDX-License-Identifier: MIT

package workload

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/ringside-io/ringside/cmd/internal/engine"
	"github.com/ringside-io/ringside/cmd/internal/measure"
	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/uring"
)

// Setups of the ring that [Nop] and [Reads] measure.
const (
	// RingDefault is a ring without flags. No-ops are submitted to it without waiting.
	RingDefault = "default"
	// RingDefer is a ring with a single issuer and deferred task work, on a locked thread, that
	// submits and waits in one call.
	RingDefer = "defer"
)

// RingWork is a workload of the suite "ring". Only the engine ringside runs it.
type RingWork interface {
	Work
	// Open returns the operation of the only goroutine, for [measure.Run], and a function that
	// closes the ring.
	Open() (op measure.Op, closeRing func() error, err error)
	// Ops returns the number of entries that one operation submits and completes.
	Ops() int
	// Options returns the options of the ring.
	Options() *uring.Options
}

// runRing runs a round. It opens a ring itself: the engine's backend for files does not matter.
func runRing(ctx context.Context, w RingWork, name string, plan measure.Plan) (s measure.Sample, err error) {
	if name != engine.NameRingside {
		return s, fmt.Errorf("unknown workload %s for engine %s", kind(w), name)
	}
	op, closeRing, err := w.Open()
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, closeRing()) }()
	plan.Goroutines, plan.Adjust = 1, unitsOf(w.Ops())
	return measure.Run(ctx, plan, func(int) (measure.Op, error) { return op, nil })
}

// NopEntries is the size of the submission queue, and so of the largest batch.
const NopEntries = 256

// nopChunk is the approximate number of no-ops between two readings of the clock. One reading costs
// as much as one no-op.
const nopChunk = 1024

// Nop submits batches of no-ops and reaps their completions. It measures the overhead of a ring.
type Nop struct {
	// Ring is RingDefault or RingDefer.
	Ring string `json:"ring"`
	// Batch is the number of entries per submission.
	Batch int `json:"batch"`
	// First is the user data of the first entry; it counts up from there.
	First uint64 `json:"first"`
}

// Run implements [Work].
func (w *Nop) Run(ctx context.Context, name string, plan measure.Plan) (measure.Sample, error) {
	return runRing(ctx, w, name, plan)
}

// Options returns the options of the ring.
func (w Nop) Options() *uring.Options {
	return &uring.Options{Entries: NopEntries, DeferTaskrun: w.Ring == RingDefer}
}

// Rounds returns the number of submissions between two readings of the clock.
func (w Nop) Rounds() int { return max(nopChunk/w.Batch, 1) }

// Ops returns the number of no-ops of one operation.
func (w Nop) Ops() int { return w.Rounds() * w.Batch }

// ProbeRing returns an error if this process cannot use such a ring.
func ProbeRing(ring string) error {
	if ring == RingDefer {
		return features.HaveDeferTaskrun()
	}
	return features.HaveIOURing()
}

// Open returns the operation of the only goroutine, for [measure.Run], and a function that closes
// the ring. One operation is [Nop.Rounds] batches of no-ops. The first operation opens the ring,
// because the ring may belong to the thread that opens it.
func (w Nop) Open() (op measure.Op, closeRing func() error, err error) {
	l, err := w.newLoop()
	if err != nil {
		return nil, nil, err
	}
	rounds := w.Rounds()
	op = func() (int, error) {
		if err := l.open(); err != nil {
			return 0, err
		}
		for range rounds {
			if err := l.round(); err != nil {
				return 0, err
			}
		}
		return 0, nil
	}
	return op, l.close, nil
}

// ringOfLoop is the ring of a loop that one goroutine runs.
type ringOfLoop struct {
	options *uring.Options
	ring    *uring.Ring
}

func newRingOfLoop(name string, o *uring.Options) (ringOfLoop, error) {
	if name != RingDefault && name != RingDefer {
		return ringOfLoop{}, fmt.Errorf("unknown ring %q", name)
	}
	return ringOfLoop{options: o}, nil
}

// open opens the ring unless it is open. With a single-issuer ring it locks the goroutine to its
// thread for good.
func (l *ringOfLoop) open() (err error) {
	if l.ring != nil {
		return nil
	}
	if l.options.DeferTaskrun {
		runtime.LockOSThread()
	}
	l.ring, err = uring.Open(*l.options)
	return err
}

func (l *ringOfLoop) close() error {
	if l.ring == nil {
		return nil
	}
	return l.ring.Close()
}

// nopLoop is a ring with the state of its loop. One goroutine uses it at a time.
type nopLoop struct {
	ringOfLoop
	batch  int
	wait   bool // submit and wait in one call
	sent   uint64
	reaped uint64
	cqes   []uring.CQE
}

func (w Nop) newLoop() (*nopLoop, error) {
	ring, err := newRingOfLoop(w.Ring, w.Options())
	if err != nil {
		return nil, err
	}
	if w.Batch < 1 || w.Batch > NopEntries {
		return nil, fmt.Errorf("batch of %d no-ops: must be 1 to %d", w.Batch, NopEntries)
	}
	return &nopLoop{
		ringOfLoop: ring, batch: w.Batch, wait: w.Ring == RingDefer,
		sent: w.First, reaped: w.First, cqes: make([]uring.CQE, w.Batch),
	}, nil
}

// round submits a batch, reaps it and checks the completions: no-ops complete in order and with
// result 0. It is one function because calls would cost more than its parts.
func (l *nopLoop) round() error {
	ring, sent := l.ring, l.sent
	for range l.batch {
		e := ring.SQE()
		if e == nil {
			return uring.ErrSQFull
		}
		e.Nop().SetUserData(sent)
		sent++
	}
	l.sent = sent
	if n, err := l.submit(); err != nil || n != l.batch {
		return l.notSubmitted(n, err)
	}
	reaped := l.reaped
	for left := l.batch; left > 0; {
		n := ring.Reap(l.cqes[:left])
		for i := range l.cqes[:n] {
			if c := &l.cqes[i]; c.Res != 0 || c.UserData != reaped {
				return wrongCompletion(c, reaped)
			}
			reaped++
		}
		left -= n
	}
	l.reaped = reaped
	return nil
}

func (l *nopLoop) submit() (int, error) {
	if l.wait {
		return l.ring.Wait(uring.WaitOptions{Count: l.batch, Brief: true})
	}
	return l.ring.SubmitNoWait()
}

func (l *nopLoop) notSubmitted(n int, err error) error {
	if err != nil {
		return err
	}
	return fmt.Errorf("submitted %d of %d no-ops", n, l.batch)
}

func wrongCompletion(c *uring.CQE, want uint64) error {
	return fmt.Errorf("completion %d of no-op %d, want 0 of %d", c.Res, c.UserData, want)
}
