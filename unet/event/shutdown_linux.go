// SPDX-License-Identifier: MIT

package event

import (
	"syscall"
)

// shutdownAll begins a shutdown.
func (l *loop) shutdownAll() {
	l.leaving = true
	for _, c := range l.conns {
		if c != nil {
			l.shutdownConn(c)
		}
	}
	l.shutdownSockets()
	l.stopAccept()
}

// finished reports whether the loop has nothing left to do, and sets over if so.
func (l *loop) finished() bool {
	if l.leaving && l.open == 0 && l.listen.closed() && l.closeArrivals() {
		l.over = true
	}
	return l.over
}

// closeArrivals reports whether no connection or socket waits for the loop. If so, no
// more can be added.
func (l *loop) closeArrivals() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = len(l.arrivals) == 0 && l.socketCount == 0 && len(l.joining) == 0
	return l.closed
}

// closeListener accepts the connections in the backlog, unless the server is aborting,
// and closes the listening socket. It accepts a batch in each turn, and in total
// no more than the backlog can have held when it began, as clients may keep connecting.
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
		l.attach(fd)
	}
	if l.server.aborting.Load() || a.left == 1 {
		_ = syscall.Close(a.fd)
		a.fd = -1
	}
}

// fail records that the driver has failed.
func (l *loop) fail(err error) {
	l.over, l.broken = true, err
	l.mu.Lock()
	l.failure = err
	l.mu.Unlock()
	if err != nil {
		l.server.opts.logger().Error("event: a loop failed; its connections end", "error", err)
	}
}

// closeAll ends the connections of a loop whose driver is broken.
func (l *loop) closeAll() {
	l.closeSockets()
	for l.registerArrivals(); !l.closeArrivals(); l.registerArrivals() {
		l.closeSockets()
		l.mu.Lock()
		l.arrivals = l.enrolled.swap(l.arrivals)
		l.mu.Unlock()
	}
	for i, c := range l.conns {
		if c == nil {
			continue
		}
		c.mu.Lock()
		c.fail(c.opError("read", l.broken))
		fd := c.bstate.fd
		c.mu.Unlock()
		// A send that is in flight must not read memory after it was returned.
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		c.setClosed()
		l.conns[i] = nil // OnClose may end the goroutine
		c.mu.Lock()
		c.bstate.fd = -1
		sending := c.out.sending
		c.mu.Unlock()
		if !sending { // otherwise the goroutine of sendFile closes it
			l.closeFD(fd, c.bstate.lingers)
		}
		l.count.open.Add(-1)
		c.onClose(c.opError("read", l.broken))
	}
	if l.listen.fd >= 0 {
		if !l.listen.shared {
			// Operations in flight may keep the socket open. Shutdown keeps clients from
			// connecting to a loop that does not serve.
			_ = syscall.Shutdown(l.listen.fd, syscall.SHUT_RDWR)
		}
		_ = syscall.Close(l.listen.fd)
		l.listen.fd = -1
	}
}
