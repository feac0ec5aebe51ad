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
	left    int       // in a shutdown: how many connections are accepted, and 1
	retryAt time.Time // accepting is paused until then
	pause   time.Duration
}

func (a *listener) closed() bool { return a.fd < 0 && !a.armed }

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
// are to be aborted anyway, and closes the listening socket. It takes a batch in
// each turn, and in all no more than may have been there when it began: clients
// may go on connecting.
func (l *loop) closeListener() {
	a := &l.listen
	if a.fd < 0 {
		return
	}
	if a.left == 0 {
		a.left = maxBacklog()
		if syscall.SetNonblock(a.fd, true) != nil {
			a.left = 1
		}
	}
	l.post(l.closeListener) // before OnOpen, which may end the goroutine
	for range acceptBatch {
		if l.server.aborting.Load() || a.left == 1 {
			break
		}
		fd, _, err := syscall.Accept4(a.fd, syscall.SOCK_CLOEXEC)
		if err == syscall.EINTR || err == syscall.ECONNABORTED {
			continue
		}
		if err != nil {
			a.left = 1
			break
		}
		a.left--
		l.adopt(fd)
	}
	if l.server.aborting.Load() || a.left == 1 {
		_ = syscall.Close(a.fd)
		a.fd = -1
	}
}

// adopt takes over an accepted connection.
func (l *loop) adopt(fd int) {
	if l.server.aborting.Load() {
		_ = syscall.Close(fd)
		return
	}
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
