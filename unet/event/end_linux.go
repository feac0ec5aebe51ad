// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"net"
	"syscall"
)

// leaveAll begins a shutdown.
func (l *loop) leaveAll() {
	l.leaving = true
	for _, c := range l.conns {
		if c != nil {
			l.leave(c)
		}
	}
	l.stopAccept()
}

// leave lets a connection end: by and by, or at once when all are aborted.
func (l *loop) leave(c *Conn) {
	if l.loops.aborted.Load() {
		c.mu.Lock()
		c.fail(net.ErrClosed)
		c.mu.Unlock()
	}
	l.touch(c)
}

// drain gives to the handler what has arrived on a connection that is to end,
// and then asks for the end. It stops where reading is stopped, and is called
// again when that may have changed.
func (l *loop) drain(c *Conn) {
	k := &c.link
	p := l.memory()
	for left := maxDrain; k.held.queue.n == 0 && !k.held.ended; {
		c.mu.Lock()
		want, s, fd := c.wantsInput(), c.state, k.fd
		c.mu.Unlock()
		if s.eof || s.closing || s.aborted {
			k.drained = true
			return
		}
		if !want {
			return
		}
		n, _, err := syscall.Recvfrom(fd, p, syscall.MSG_DONTWAIT)
		switch {
		case errors.Is(err, syscall.EINTR):
		case errors.Is(err, syscall.EAGAIN) || left <= 0:
			k.drained = true
			l.sayGoodbye(c)
			return
		case err != nil:
			errno, _ := err.(syscall.Errno)
			l.broke(c, -int32(errno))
		case n == 0:
			l.broke(c, 0)
		default:
			left -= n
			c.onData(p[:n])
		}
	}
}

// sayGoodbye asks the handler to end a connection, or does it.
func (l *loop) sayGoodbye(c *Conn) {
	if f := l.server.handler.OnShutdown; f != nil {
		f(c)
	} else {
		c.mu.Lock()
		c.state.finWrite = true
		c.link.discard = true
		c.mu.Unlock()
	}
	l.touch(c)
}

// doom notes that the driver cannot be used any more.
func (l *loop) doom(err error) {
	l.over, l.broken = true, err
}

// bury ends the connections of a loop whose driver is broken.
func (l *loop) bury() {
	for _, c := range l.conns {
		if c == nil {
			continue
		}
		c.mu.Lock()
		c.state.closed = true
		fd := c.link.fd
		c.link.fd = -1
		c.mu.Unlock()
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		_ = syscall.Close(fd)
		c.onClose(c.opError("read", l.broken))
		l.count.open.Add(-1)
	}
	if l.listen.fd >= 0 {
		// What the driver has under way may keep the socket: nobody shall connect
		// to a loop that serves no more.
		_ = syscall.Shutdown(l.listen.fd, syscall.SHUT_RDWR)
		_ = syscall.Close(l.listen.fd)
	}
}
