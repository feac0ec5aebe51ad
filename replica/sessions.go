// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"sync"
	"sync/atomic"
)

// sessions are the connections of this node's driver.
type sessions struct {
	closing     context.Context
	forwardIdle atomic.Int64 // see defaultForwardIdle
	connecting  sync.Map     // *conn by token, while SQLite opens its files

	mu    sync.Mutex
	conns map[*conn]struct{}
}

// evict ends the transactions of connections of this node: of one database, or of all.
func (s *sessions) evict(db *database) {
	s.mu.Lock()
	var all []*conn
	for k := range s.conns {
		if (db == nil || k.db == db) && (k.writer || db != nil && k.epoch != db.epoch.Load() || s.closing.Err() != nil) {
			all = append(all, k)
		}
	}
	s.mu.Unlock()
	for _, k := range all {
		if k.depose() {
			go k.end()
		}
	}
}

// awaitWriters waits for the calls of ended writers. One of them may have to write a transaction into
// its file that was committed in an earlier term, and that others have read from other nodes meanwhile.
func (s *sessions) awaitWriters() {
	s.mu.Lock()
	var all []*conn
	for k := range s.conns {
		if k.writer {
			all = append(all, k)
		}
	}
	s.mu.Unlock()
	for _, k := range all {
		k.end()
	}
}
