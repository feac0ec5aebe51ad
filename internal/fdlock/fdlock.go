// SPDX-License-Identifier: MIT

// Package fdlock counts who uses a descriptor, so that closing waits for the
// last user: a number that was closed early could already name another file
// when the kernel gets to the operation.
package fdlock

import "sync/atomic"

// Lock guards one descriptor. The zero value is open.
type Lock struct {
	state atomic.Uint64 // closed bit and the number of users
	idle  atomic.Pointer[chan struct{}]
}

const closed = 1 << 63

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
	if l.state.Add(^uint64(0)) == closed {
		if ch := l.idle.Load(); ch != nil {
			select {
			case *ch <- struct{}{}:
			default:
			}
		}
	}
}

// Close refuses new users and waits until the last one has gone. It returns
// false, at once, when somebody else closed before.
func (l *Lock) Close() bool {
	ch := make(chan struct{}, 1)
	l.idle.CompareAndSwap(nil, &ch)
	if l.state.Or(closed)&closed != 0 {
		return false
	}
	mine := *l.idle.Load()
	for l.state.Load() != closed {
		<-mine
	}
	return true
}

// Closed says whether Close has been called.
func (l *Lock) Closed() bool { return l.state.Load()&closed != 0 }
