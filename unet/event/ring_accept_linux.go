// SPDX-License-Identifier: MIT

package event

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// noSlot is in the place of a connection's slot.
const noSlot = 1<<32 - 1

// armAccept implements driver.
func (l *ringLoop) armAccept() {
	a := &l.listen
	if a.armed || a.stopped {
		return
	}
	e := l.ring.SQE()
	if e == nil {
		a.retryAt = time.Now()
		return
	}
	e.AcceptMultishot(uring.Fd(a.fd), syscall.SOCK_CLOEXEC).SetUserData(tag(kindAccept, noSlot, 0))
	a.armed, a.retryAt = true, time.Time{}
}

// accepted handles a completion of the accept.
func (l *ringLoop) accepted(c uring.CQE) {
	a := &l.listen
	if !c.Has(uring.CQEMore) {
		a.armed = false
	}
	errno := c.Errno()
	switch {
	case a.armed:
	case a.stopped:
		l.closeListener()
	case errno == 0 || retries(errno):
		l.armAccept()
	default:
		// The kernel answers at once, so asking again at once would spin. The
		// connections wait in the backlog.
		l.pauseAccept()
	}
	if errno == 0 {
		a.pause = 0
		l.adopt(int(c.Res))
	}
}

// retries reports whether accepting may be tried again at once: one connection
// was lost, or the thread that had armed it is gone.
func retries(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNABORTED, syscall.EINTR, syscall.EAGAIN, syscall.ECANCELED:
		return true
	}
	return false
}

// disarm implements driver.
func (l *ringLoop) disarm() {
	if !l.listen.armed {
		l.closeListener()
		return
	}
	if e := l.sqe(); e != nil {
		e.Cancel(tag(kindAccept, noSlot, 0), 0).SetUserData(tag(kindCancel, noSlot, 0))
		return
	}
	l.post(l.disarm)
}
