// SPDX-License-Identifier: MIT

package event

import (
	"syscall"
	"time"
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

// outOf says that descriptors or memory have run out.
func outOf(errno syscall.Errno) bool {
	switch errno {
	case syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM:
		return true
	}
	return false
}

// pauseAccept puts off accepting. The connections wait in the backlog.
func (l *loop) pauseAccept() {
	a := &l.listen
	a.pause = min(max(2*a.pause, firstPause), maxPause)
	a.retryAt = time.Now().Add(a.pause)
	l.count.acceptRetries.Add(1)
}

// stopAccept ends accepting.
func (l *loop) stopAccept() {
	a := &l.listen
	if !a.stopped {
		a.stopped, a.retryAt = true, time.Time{}
		l.d.disarm()
	}
}

// closeListener takes the connections that the kernel has accepted, unless they
// are to be aborted anyway, and closes the listening socket.
func (l *loop) closeListener() {
	a := &l.listen
	if a.fd < 0 {
		return
	}
	if !l.loops.aborted.Load() && syscall.SetNonblock(a.fd, true) == nil {
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
	c.state.kicked = true // the loop looks anyhow
	c.onOpen()
	if l.leaving {
		l.leave(c)
	}
	l.touch(c)
}
