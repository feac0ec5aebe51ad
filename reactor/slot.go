// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"sync/atomic"

	"github.com/ringside-io/ringside/internal/inflight"
)

// slot holds one operation from its start until its result was taken.
type slot = inflight.Slot[entry]

// entry is the value of a slot.
type entry struct {
	use
	done chan struct{} // capacity 1: completing never blocks

	// A goroutine that cancels does not hold the slot, which may be released and used
	// again at any time. So these fields hold the ID of the use that they are about.
	cancelled  atomic.Uint64 // the operation's cancellation was requested; set under mu
	rechecking atomic.Uint64 // the operation has ended, and recheck decides whether it is submitted again
	thread     atomic.Int32  // the thread that has submitted it
	missed     atomic.Uint64 // generation << 32 | cancellations that had no effect
	key        raceKey
}

// use is the part of an entry that belongs to one operation.
type use struct {
	op  Op // also for submitting it again
	res Result
	fn  func(Result) // the callback of a queued operation

	cancels uint32 // the loop's count of cancelling SQEs when it was submitted
	retries int    // how often it was submitted again

	workerless int // of these, how often for lack of a worker thread

	detached bool // no goroutine waits: end releases the slot
	stream   bool // every completion is an event
	answered bool // res is set; a notification follows
	leaked   bool // the ring has failed and the kernel may still use the memory
}

// requestCancel notes that the cancellation of a use was requested.
func (v *entry) requestCancel(id inflight.ID) { v.cancelled.Store(uint64(id)) }

func (v *entry) cancelRequested(id inflight.ID) bool { return v.cancelled.Load() == uint64(id) }

// countMissed counts a cancellation without effect and returns how many there were
// before. The caller holds reaping.
func (v *entry) countMissed(id inflight.ID) int {
	m := v.missed.Load()
	if m>>32 != uint64(id)>>32 {
		m = uint64(id) >> 32 << 32
	}
	v.missed.Store(m + 1)
	return int(uint32(m))
}

// signal wakes one of the goroutines that receive from it. Sending never blocks.
type signal chan struct{}

func newSignal() signal { return make(signal, 1) }

// send wakes one receiver, now or when it next receives.
func (s signal) send() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// fill puts an operation into a slot, which then owns the operation's memory.
func (l *loop) fill(s *slot, op *Op) {
	v := &s.Value
	v.op = *op
	l.raceTake(v)
}

// tryAcquire takes a slot if one is free. On a ring that has failed no slot may ever
// become free, because the operations that the kernel has taken keep theirs.
func (l *loop) tryAcquire() (*slot, error) {
	if s, ok := l.table.Acquire(); ok {
		return s, nil
	}
	if err := l.refusal(); err != nil {
		return nil, err
	}
	return nil, ErrFull
}

// acquire takes a slot. While none is free it waits, until ctx is done.
func (l *loop) acquire(ctx context.Context) (*slot, error) {
	if s, ok := l.table.Acquire(); ok {
		return s, nil
	}
	l.waiters.Add(1)
	defer l.waiters.Add(-1)
	l.stats.waits.Add(1)
	for {
		err := l.refusal()
		s, ok := l.table.Acquire()
		if err == nil && !ok {
			select {
			case <-l.released:
				continue
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
		if l.waiters.Load() > 1 {
			l.released.send() // the next waiter looks for a slot, or the same error
		}
		if err != nil && ok {
			l.release(s)
		}
		return s, err
	}
}

// release frees a slot and drops its references. It takes no lock.
func (l *loop) release(s *slot) {
	v := &s.Value
	if v.leaked {
		return
	}
	v.raceGiveBack()
	v.use = use{}
	l.table.Release(s)
	if l.waiters.Load() > 0 {
		l.released.send()
	}
	if l.closing.Load() && l.table.Held() == 0 {
		l.idle.send()
	}
}

// end delivers the result of an operation to its goroutine or callback. The caller
// holds reaping, or mu if the kernel does not have the operation. closeRing takes both
// locks, so that no goroutine is in end afterwards.
func (l *loop) end(s *slot, res Result) {
	v := &s.Value
	v.res = res
	if !s.Complete() {
		l.release(s)
		return
	}
	if !v.detached {
		v.done <- struct{}{} // the waiting goroutine releases the slot
		return
	}
	fn := v.fn
	l.release(s)
	l.callbacks.add(fn, res)
}

// refusal returns why no operation can start, nil if one can.
func (l *loop) refusal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refusalLocked()
}

// refusalLocked is refusal for a caller that holds mu.
func (l *loop) refusalLocked() error {
	if l.closing.Load() {
		return ErrClosed
	}
	return l.failed
}
