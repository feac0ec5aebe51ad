// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"net"
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

// Wait waits until this node has applied a position, for example one that
// Node.Position returned on the leader after a commit: later reads with Stale see that
// commit.
func (n *Node) Wait(ctx context.Context, pos Position) error {
	for {
		n.progress.mu.Lock()
		if n.progress.applied.Load() >= pos.Index {
			n.progress.mu.Unlock()
			return nil
		}
		if n.progress.waiting == nil {
			n.progress.waiting = make(chan struct{})
		}
		ch := n.progress.waiting
		n.progress.mu.Unlock()
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		case <-n.life.closing.Done():
			return net.ErrClosed
		}
	}
}
