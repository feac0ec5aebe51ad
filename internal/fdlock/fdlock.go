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
	// left is closed by the last user, where Close waits on it.
	left atomic.Pointer[chan struct{}]
	// idle is locked by CloseAcrossBubbles and unlocked by the last user.
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
	if l.state.Add(^uint64(0)) != closed || !l.last() {
		return
	}
	if left := l.left.Load(); left != nil {
		close(*left)
		return
	}
	l.idle.Unlock()
}

// last reports whether the caller is the one user that ends the wait of Close.
// Calls of Acquire that fail come and go meanwhile, and the last of them may be
// it.
func (l *Lock) last() bool { return l.state.CompareAndSwap(closed, closed|gone) }

// Close refuses new users and waits until the last one has gone. It returns
// false, at once, when another call has closed before. In a synctest bubble the
// wait is durable, and all users must be of that bubble.
func (l *Lock) Close() bool {
	left := make(chan struct{})
	l.left.CompareAndSwap(nil, &left)
	return l.close(func() {}, func() { <-*l.left.Load() })
}

// CloseAcrossBubbles is [Lock.Close] whose users may be outside of the caller's
// synctest bubble, where a channel of the bubble cannot be used. The wait is not
// durable. A Lock is closed in one of the two ways only.
func (l *Lock) CloseAcrossBubbles() bool {
	return l.close(l.idle.Lock, l.idle.Lock) // the last user unlocks it in between
}

func (l *Lock) close(prepare, wait func()) bool {
	l.state.Add(1) // the caller counts as a user until it is ready to wait
	if l.state.Or(closed)&closed != 0 {
		l.Release()
		return false
	}
	prepare()
	if l.state.Add(^uint64(0)) == closed && l.last() {
		return true
	}
	wait()
	return true
}

// Closed reports whether Close has been called.
func (l *Lock) Closed() bool { return l.state.Load()&closed != 0 }
