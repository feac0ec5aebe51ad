// SPDX-License-Identifier: MIT

package reactor

import (
	"errors"
	"sync"
)

// doomed keeps what the kernel may still write to after a ring has failed with
// operations in flight: freeing it would be worse than keeping it.
var doomed struct {
	sync.Mutex
	loops []*loop
}

// close refuses new operations, waits for those in flight, and frees the ring.
func (l *loop) close() error {
	l.starved.Add(1) // before the first look, so that releases tell
	l.mu.Lock()
	l.shut = true
	l.room.Broadcast()
	for l.table.Held() > 0 && l.failed == nil {
		l.room.Wait()
	}
	failed := l.failed
	l.mu.Unlock()
	l.starved.Add(-1)
	err := errors.Join(l.park.stop(), l.ring.Close())
	if failed != nil && l.table.Held() > 0 {
		doomed.Lock()
		doomed.loops = append(doomed.loops, l)
		doomed.Unlock()
	}
	return errors.Join(failed, err)
}
