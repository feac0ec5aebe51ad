// SPDX-License-Identifier: MIT

package main

import (
	"syscall"

	"github.com/ringside-io/ringside/watch"
)

// input are the events that a connection waits for while it has nothing to send.
// PeerHangUp reports that the end follows the data, so that it is read, too.
const input = watch.Read | watch.PeerHangUp

// conn is a connection.
type conn struct {
	s     *server
	fd    int // -1 once it is closed
	out   []byte
	timer *watch.Timer
}

func (s *server) open(fd int) {
	c := &conn{s: s, fd: fd}
	if err := s.l.Add(fd, input, watch.Edge, c.ready); err != nil {
		_ = syscall.Close(fd)
		return
	}
	s.conns[c] = struct{}{}
	c.timer = s.l.AfterFunc(s.idle, c.close)
}

// ready is called for each event. Output goes first: while any is pending, nothing
// is read, so a connection holds at most one buffer.
func (c *conn) ready(e watch.Events) {
	c.timer.Reset(c.s.idle)
	if len(c.out) > 0 {
		if !c.flush(c.out) {
			return
		}
		c.out = nil
		c.next(input) // reports data that have arrived meanwhile
		return
	}
	for c.echo(e) {
	}
}

// echo reads once, writes the data back, and reports whether to continue.
func (c *conn) echo(e watch.Events) bool {
	n, err := syscall.Read(c.fd, c.s.buf)
	switch {
	case err == syscall.EINTR:
		return true
	case err == syscall.EAGAIN:
		return false
	case err != nil || n == 0:
		c.close()
		return false
	}
	if !c.flush(c.s.buf[:n]) {
		return false
	}
	// A read that does not fill the buffer has emptied the socket, unless the
	// event reports that the end follows.
	return n == len(c.s.buf) || e&(watch.PeerHangUp|watch.HangUp|watch.Error) != 0
}

// flush writes b, keeps the part that the socket does not accept, and reports
// whether it accepted all.
func (c *conn) flush(b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(c.fd, b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			kept := len(c.out) > 0
			c.out = append(c.out[:0], b...)
			if !kept {
				c.next(watch.Write)
			}
			return false
		case err != nil:
			c.close()
			return false
		default:
			b = b[n:]
		}
	}
	return true
}

// next changes what the connection waits for.
func (c *conn) next(e watch.Events) {
	if c.s.over && e == input {
		c.close() // all output is sent
		return
	}
	if err := c.s.l.Modify(c.fd, e, watch.Edge); err != nil {
		c.close()
	}
}

func (c *conn) close() {
	if c.fd < 0 {
		return
	}
	c.timer.Stop()
	_ = c.s.l.Remove(c.fd) // before closing: the number may be used again at once
	_ = syscall.Close(c.fd)
	c.fd = -1
	delete(c.s.conns, c)
	if c.s.over && len(c.s.conns) == 0 {
		c.s.l.Stop()
	}
}
