// SPDX-License-Identifier: MIT

// Package fdlock counts the users of a descriptor, so that closing waits for the
// last one: a number that was closed early could already name another file when
// the kernel gets to the operation.
package fdlock

import (
	"sync"
	"sync/atomic"
)

// Lock guards one descriptor. The zero value is open.
type Lock struct {
	state atomic.Uint64 // the flags below and the number of users
	// idle is locked by Close and unlocked by the last user. A channel that Close
	// made would belong to the synctest bubble of its caller, and a user outside
	// of the bubble could not signal it.
	idle sync.Mutex
}

const (
	closed = 1 << 63
	gone   = 1 << 62 // no user was left after closed was set
)

// Acquire adds a user; false means that the descriptor is closed or closing.
func (l *Lock) Acquire() bool {
	if l.state.Add(1)&closed == 0 {
		return true
	}
	l.Release()
	return false
}

// Release removes a user.
func (l *Lock) Release() {
	if l.state.Add(^uint64(0)) == closed && l.last() {
		l.idle.Unlock()
	}
}

// last reports whether the caller is the one user that ends the wait of Close.
// Calls of Acquire that fail come and go meanwhile, and the last of them may be
// it.
func (l *Lock) last() bool { return l.state.CompareAndSwap(closed, closed|gone) }

// Close refuses new users and waits until the last one has gone. It returns
// false, at once, when another call has closed before.
func (l *Lock) Close() bool {
	l.state.Add(1) // the caller counts as a user until idle is locked
	if l.state.Or(closed)&closed != 0 {
		l.Release()
		return false
	}
	l.idle.Lock()
	if l.state.Add(^uint64(0)) == closed && l.last() {
		return true
	}
	l.idle.Lock() // until the last user unlocks it
	return true
}

// Closed reports whether Close has been called.
func (l *Lock) Closed() bool { return l.state.Load()&closed != 0 }
