// SPDX-License-Identifier: MIT

package replica

import (
	"sync"
	"sync/atomic"
)

// progress is how far this node has applied raft's log.
type progress struct {
	applied   atomic.Uint64
	began     atomic.Uint64 // index up to which entries are applied or being applied
	recovered atomic.Bool   // all entries from before the start are applied
	halted    bool          // an entry could not be read before Close; later ones are not applied. For the state machine only

	mu      sync.Mutex
	waiting chan struct{} // closed when applied grows; nil without a waiting call
}

// advance records that an entry was applied.
func (p *progress) advance(index uint64) {
	p.applied.Store(index)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.waiting != nil {
		close(p.waiting)
		p.waiting = nil
	}
}

// newest returns the index of the newest entry that this node has begun to apply. Commits are acknowledged while
// their entries are being applied.
func (p *progress) newest() uint64 { return max(p.began.Load(), p.applied.Load()) }
