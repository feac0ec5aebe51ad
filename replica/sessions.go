// SPDX-License-Identifier: MIT

package replica

import (
	"context"
	"sync"
	"sync/atomic"

	sqlite "github.com/ncruces/go-sqlite3/driver"
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

// conn is a connection of the driver. Its calls are made one at a time, so that the node can
// roll back a transaction while none is running.
type conn struct {
	sqlite.Conn
	c       *connector
	db      *database
	epoch   uint64
	writer  bool
	deposed atomic.Bool
	ended   chan struct{} // closed when deposed is set
	// What the VFS has noted since the last call began: why SQLite's call failed, and that a
	// transaction was committed.
	failure   atomic.Pointer[error]
	committed atomic.Bool

	mu       sync.Mutex
	checked  bool // check has succeeded in this transaction
	inTx     bool
	attaches bool            // the text that is being prepared has the keyword ATTACH
	ending   bool            // the connection itself begins or ends a transaction
	txCtx    context.Context // of BeginTx
	closed   bool
}

// callContext is the context of a call, or of its rows. For SQLite, which calls Err, it also ends when
// the connection is ended.
type callContext struct {
	context.Context
	k *conn
}

func (c *callContext) Err() error {
	if c.k.deposed.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// context returns the context of the running call.
func (k *conn) context() context.Context {
	if k.Conn == nil { // it is being opened, or is not one of the driver
		return context.Background()
	}
	return k.Conn.Raw().GetInterrupt()
}

// depose ends the use of the connection, and reports whether this call did it. It interrupts SQLite.
func (k *conn) depose() bool {
	if k.deposed.Swap(true) {
		return false
	}
	close(k.ended)
	return true
}

// end rolls back when the running call has returned.
func (k *conn) end() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.rollback()
}

// open reports whether a transaction is open.
func (k *conn) open() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.closed && !k.Conn.Raw().GetAutocommit()
}

// rollback ends an open transaction. k.mu is locked.
func (k *conn) rollback() {
	if raw := k.Conn.Raw(); !k.closed && !raw.GetAutocommit() {
		old := raw.SetInterrupt(context.Background())
		k.ending = true
		_ = raw.Exec("ROLLBACK")
		k.ending = false
		raw.SetInterrupt(old)
	}
}
