// SPDX-License-Identifier: MIT

// Package fdlock counts the users of a descriptor, so that closing waits for the last
// one. If the descriptor were closed earlier, its number could name another file by the
// time the kernel takes the operation.
package fdlock

import (
	"sync"
	"sync/atomic"
)

// Lock guards one descriptor. The zero value is open.
type Lock struct {
	state  atomic.Uint64 // the flags below and the number of users
	waiter atomic.Pointer[waiter]
}

// waiter lets a call of Close wait until the last user has released the lock.
type waiter struct {
	left chan struct{} // closed by the last user; nil if idle is used
	idle sync.Mutex    // locked until the last user unlocks it
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
	if l.state.Add(^uint64(0)) != closed || !l.last() {
		return
	}
	if w := l.waiter.Load(); w.left != nil {
		close(w.left)
	} else {
		w.idle.Unlock()
	}
}

// last reports whether the caller is the first to find that no user is left. Failing
// calls of Acquire count as users for a moment, so one of them may be that caller.
func (l *Lock) last() bool { return l.state.CompareAndSwap(closed, closed|gone) }

// Close refuses new users and waits until the last user has called Release. It returns
// false at once when the lock was already closed. In a synctest bubble the wait is
// durable, and all users must be of that bubble.
func (l *Lock) Close() bool {
	w, ok := l.close(func() *waiter { return &waiter{left: make(chan struct{})} })
	if w != nil {
		<-w.left
	}
	return ok
}

// CloseAcrossBubbles is [Lock.Close] for users that may be outside of the caller's
// synctest bubble, where they cannot use a channel of the bubble. The wait is not
// durable. Call only one of the two for a Lock.
func (l *Lock) CloseAcrossBubbles() bool {
	w, ok := l.close(func() *waiter {
		w := &waiter{}
		w.idle.Lock()
		return w
	})
	if w != nil {
		w.idle.Lock()
	}
	return ok
}

// close refuses new users. It returns the waiter, or nil if no user is left, and
// whether the call is the first.
func (l *Lock) close(newWaiter func() *waiter) (*waiter, bool) {
	l.state.Add(1) // the caller counts as a user until the waiter is there
	if l.state.Or(closed)&closed != 0 {
		l.Release()
		return nil, false
	}
	if l.state.CompareAndSwap(closed|1, closed|gone) {
		return nil, true
	}
	w := newWaiter()
	l.waiter.Store(w)
	if l.state.Add(^uint64(0)) == closed && l.last() {
		return nil, true
	}
	return w, true
}

// Closed reports whether Close has been called.
func (l *Lock) Closed() bool { return l.state.Load()&closed != 0 }
