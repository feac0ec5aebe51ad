// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ringside-io/ringside/internal/inflight"
	"github.com/ringside-io/ringside/internal/ringloop"
)

// shutDoor refuses new operations.
func (l *loop) shutDoor() {
	l.mu.Lock()
	l.shut = true
	l.mu.Unlock()
	l.room.put() // who waits for room learns, and tells the next
}

// drain refuses new operations and waits for those in flight.
func (l *loop) drain(ctx context.Context) error {
	l.draining.Store(true) // before the first look, so that releases tell
	l.shutDoor()
	for l.table.Held() > 0 {
		if err := l.failure(); err != nil {
			l.idle.put()
			return err
		}
		select {
		case <-l.idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	l.idle.put() // for another who waits
	return nil
}

func (l *loop) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// close ends all operations and frees the ring.
func (l *loop) close() error {
	l.mu.Lock()
	l.closing = true
	l.mu.Unlock()
	l.shutDoor()
	l.cancelAll()
	_ = l.drain(context.Background())
	var err error
	if l.opts.Pinned {
		err = l.stopPinned()
	} else {
		err = errors.Join(l.park.stop(), l.closeRing())
		if l.failure() != nil {
			l.bury()
		}
		l.calls.stop()
	}
	l.shadow.stop()
	return errors.Join(l.failure(), err)
}

// closeRing frees the ring when nobody is about to look into it any more: who
// submitted an operation may still want to reap after it has ended.
func (l *loop) closeRing() error {
	l.registering.Lock()
	defer l.registering.Unlock()
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.dropErrands()
	for _, s := range l.stores {
		s.shut()
	}
	l.pending = nil
	clear(l.backlog) // cancellations of what is over
	l.space.Broadcast()
	defer func() { closed.Store(time.Now().UnixNano()) }()
	return l.ring.Close()
}

// fail ends all operations that the kernel has not taken and refuses new ones.
// Those that it has end when their completions come, which on a shared loop
// takes no submission unless they overflow; see bury and strand for the others.
// The caller holds mu.
func (l *loop) fail(err error) {
	if l.failed != nil {
		return
	}
	l.failed = fmt.Errorf("%w: %w", ErrFailed, err)
	l.opts.Logger.Error("io_uring failed; operations on it end with this error", "error", err)
	for _, e := range l.pending {
		if s := l.table.Lookup(inflight.ID(e.Raw().UserData)); s != nil {
			l.end(s, Result{Cause: l.failed})
		}
	}
	l.pending = nil
	for _, c := range l.backlog {
		switch s := l.table.Lookup(c.id); {
		case s == nil, c.cancel: // over, or the kernel has it
		case c.chain != nil:
			l.endAll(c.chain.slots, l.failed)
		default:
			l.end(s, Result{Cause: l.failed})
		}
	}
	clear(l.backlog) // somebody may be going through it
	l.failParkedStreams()
	l.calls.kick()
	l.wakeLocked()
	l.room.put()
	l.idle.put()
	l.space.Broadcast()
	if !l.opts.Pinned {
		go l.reap() // some may have overflowed before
	}
}

// bury ends the operations that the kernel still has after the ring has failed
// and when no completion will be seen any more.
func (l *loop) bury() {
	l.reapAll()
	l.giveUp()
}

// giveUp ends all operations that the kernel has. Their slots are never used
// again, because the kernel may use what they hold.
func (l *loop) giveUp() {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.table.Each(func(s *slot) {
		s.Value.doomed = true
		ringloop.Leak(l) // also when nobody closes it
		l.end(s, Result{Cause: fmt.Errorf("%w: %w", l.failed, ErrTaken)})
	})
}
