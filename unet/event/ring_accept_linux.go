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
	switch errno := c.Errno(); {
	case errno == 0:
		a.pause = 0
		l.adopt(int(c.Res))
	case a.stopped:
	case outOf(errno):
		// The kernel answers at once, so asking again at once would spin. The
		// connections wait in the backlog.
		l.pauseAccept()
		return
	}
	switch {
	case a.armed:
	case a.stopped:
		l.closeListener()
	default:
		l.armAccept()
	}
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
