// SPDX-License-Identifier: MIT

package reactor

import (
	"context"
	"errors"
	"sync"
)

// doomed keeps what the kernel may still write to after a ring has failed with
// operations in flight: freeing it would be worse than keeping it.
var doomed struct {
	sync.Mutex
	loops []*loop
}

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
	for l.table.Held() > 0 && l.failure() == nil {
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
	l.shutDoor()
	l.mu.Lock()
	l.cancelAll()
	l.mu.Unlock()
	if !l.opts.Pinned {
		l.reap()
	}
	_ = l.drain(context.Background())
	var err error
	if l.opts.Pinned {
		err = l.stopPinned()
	} else {
		err = l.park.stop()
		l.calls.stop()
		err = errors.Join(err, l.closeRing())
	}
	if l.table.Held() > 0 {
		doomed.Lock()
		doomed.loops = append(doomed.loops, l)
		doomed.Unlock()
	}
	return errors.Join(l.failure(), err)
}

// closeRing frees the ring when nobody is about to look into it any more: who
// submitted an operation may still want to reap after it has ended.
func (l *loop) closeRing() error {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	return l.ring.Close()
}
