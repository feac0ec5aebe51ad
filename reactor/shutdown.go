// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"time"
)

// close ends all operations and frees the ring.
func (l *loop) close() error {
	l.mu.Lock()
	l.closing.Store(true)
	l.mu.Unlock()
	l.released.send() // a goroutine that waits for a slot sees closing, and wakes the next
	l.cancelAll()
	l.awaitIdle()
	err := errors.Join(l.park.stop(), l.closeRing())
	if l.failure() != nil {
		l.failTaken()
	}
	l.callbacks.stop()
	l.race.stop()
	return errors.Join(l.failure(), err)
}

// awaitIdle waits until no slot is held, or the ring has failed.
func (l *loop) awaitIdle() {
	for l.table.Held() > 0 && l.failure() == nil {
		<-l.idle
	}
}

// failure returns why the ring cannot be used any more, nil if it can.
func (l *loop) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// closeRing closes the ring. A goroutine that submitted may still want to reap after
// its operation has ended, so closeRing takes both locks and sets gone.
func (l *loop) closeRing() error {
	l.reaping.Lock()
	defer l.reaping.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	l.pending = nil
	clear(l.work) // cancellations of operations that have ended
	l.space.Broadcast()
	defer func() { lastClose.Store(time.Now().UnixNano()) }()
	return l.ring.Close()
}
