// SPDX-License-Identifier: MIT

package event

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// listener is the loop's listening socket.
type listener struct {
	fd      int // -1 when closed
	armed   bool
	stopped bool
	retryAt time.Time // accepting is paused until then
	pause   time.Duration
}

func (a *listener) closed() bool { return a.fd < 0 && !a.armed }

// noSlot is in the place of a connection's slot.
const noSlot = 1<<32 - 1

// armAccept starts to accept.
func (l *loop) armAccept() {
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
func (l *loop) accepted(c uring.CQE) {
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
		a.pause = min(max(2*a.pause, firstPause), maxPause)
		a.retryAt = time.Now().Add(a.pause)
		l.count.acceptRetries.Add(1)
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

// outOf says that descriptors or memory have run out.
func outOf(errno syscall.Errno) bool {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

// stopAccept ends accepting.
func (l *loop) stopAccept() {
	a := &l.listen
	if a.stopped {
		return
	}
	a.stopped, a.retryAt = true, time.Time{}
	if !a.armed {
		l.closeListener()
		return
	}
	l.cancelAccept()
}

func (l *loop) cancelAccept() {
	if e := l.sqe(); e != nil {
		e.Cancel(tag(kindAccept, noSlot, 0), 0).SetUserData(tag(kindCancel, noSlot, 0))
		return
	}
	l.post(l.cancelAccept)
}

// closeListener takes the connections that the kernel has accepted, unless they
// are to be aborted anyway, and closes the listening socket.
func (l *loop) closeListener() {
	a := &l.listen
	if a.fd < 0 {
		return
	}
	if !l.rings.aborted.Load() && syscall.SetNonblock(a.fd, true) == nil {
		for {
			fd, _, err := syscall.Accept4(a.fd, syscall.SOCK_CLOEXEC)
			if err == syscall.EINTR || err == syscall.ECONNABORTED {
				continue
			}
			if err != nil {
				break
			}
			l.adopt(fd)
		}
	}
	_ = syscall.Close(a.fd)
	a.fd = -1
}

// adopt takes over an accepted connection.
func (l *loop) adopt(fd int) {
	c := &Conn{server: l.server, back: l}
	l.gen++
	k := &c.link
	k.fd, k.gen = fd, l.gen&genMask
	if n := len(l.free); n > 0 {
		k.slot = l.free[n-1]
		l.free = l.free[:n-1]
		l.conns[k.slot] = c
	} else {
		k.slot = uint32(len(l.conns))
		l.conns = append(l.conns, c)
	}
	l.open++
	l.count.open.Add(1)
	l.count.accepted.Add(1)
	c.onOpen()
	if l.leaving {
		l.leave(c)
	}
	l.touch(c)
}
