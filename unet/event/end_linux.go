// SPDX-License-Identifier: MIT

package event

import (
	"net"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
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
	if l.server.aborting.Load() {
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
	if k.drainLeft == 0 {
		k.drainLeft = maxDrain
	}
	for n := 0; k.held.queue.n == 0 && !k.held.ended; n++ {
		if n == pieces {
			l.touch(c) // the others have their turn
			return
		}
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
		n, errno := 0, syscall.EAGAIN
		if k.drainLeft > 0 {
			n, errno = sys.SockRecv(fd, p, sys.MsgDontWait)
		}
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			k.drained = true
			l.sayGoodbye(c)
			return
		case errno != 0:
			l.broke(c, -int32(errno))
		case n == 0:
			l.broke(c, 0)
		default:
			if k.drainLeft -= n; k.drainLeft == 0 {
				k.drainLeft = -1
			}
			c.onData(p[:n])
		}
	}
}

// sayGoodbye asks the handler to end a connection, or does it.
func (l *loop) sayGoodbye(c *Conn) {
	if !c.onShutdown() {
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
	for i, c := range l.conns {
		if c == nil {
			continue
		}
		l.conns[i] = nil // OnClose may end the goroutine
		c.mu.Lock()
		c.state.closed = true
		fd := c.link.fd
		c.link.fd = -1
		c.mu.Unlock()
		_ = syscall.Shutdown(fd, syscall.SHUT_RDWR)
		_ = syscall.Close(fd)
		l.count.open.Add(-1)
		c.onClose(c.opError("read", l.broken))
	}
	if l.listen.fd >= 0 {
		// What the driver has under way may keep the socket: nobody shall connect
		// to a loop that serves no more.
		_ = syscall.Shutdown(l.listen.fd, syscall.SHUT_RDWR)
		_ = syscall.Close(l.listen.fd)
		l.listen.fd = -1
	}
}
