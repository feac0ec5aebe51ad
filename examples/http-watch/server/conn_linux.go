// SPDX-License-Identifier: MIT

package server

import (
	"io"
	"net/http"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/unet/event/framing"
	"github.com/ringside-io/ringside/watch"
)

const (
	// input are the events that a connection waits for while it has nothing to send.
	// PeerHangUp reports that the end follows the data, so that it is read, too.
	input = watch.Read | watch.PeerHangUp

	// maxOut is the amount of output from which the server answers no more requests
	// of a connection until the output has been sent. A connection holds at most this
	// and one more answer.
	maxOut = 64 << 10

	lingering = time.Second
)

// conn is a connection.
type conn struct {
	s       *Server
	fd      int    // -1 once it is closed
	in      []byte // an incomplete request, or requests that wait for out to be sent
	out     []byte // output that the socket has not accepted
	writing bool   // waits until the socket accepts out
	skip    int64  // bytes of a body still to come
	ended   bool   // the peer has ended its direction
	last    bool   // the connection ends after out
	refused bool   // the input was not a request
	lingers bool   // only reads, until the peer ends
	once    bool   // was registered for one event only
	timer   *watch.Timer
}

func (s *Server) open(fd int) {
	c := &conn{s: s, fd: fd, once: true}
	// Many connections send one request. After a one-shot event nothing is
	// registered with the kernel that closing would have to cancel.
	if err := s.l.Add(fd, input, watch.OneShot, c.ready); err != nil {
		_ = syscall.Close(fd)
		return
	}
	_ = syscall.SetsockoptInt(fd, syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 1) // answers are written whole
	s.conns[c] = struct{}{}
	c.timer = s.l.AfterFunc(s.idle, c.close)
}

// resting reports whether no input or output is unfinished.
func (c *conn) resting() bool { return !c.writing && len(c.in) == 0 && c.skip == 0 }

// ready is called for each event.
func (c *conn) ready(e watch.Events) {
	switch {
	case c.lingers:
		c.discard()
	case c.writing:
		c.resume()
	default:
		for c.take(e) {
		}
		if c.once && c.fd >= 0 {
			c.wait(input)
		}
	}
}

// take reads once, answers, and reports whether to continue.
func (c *conn) take(e watch.Events) bool {
	n, err := syscall.Read(c.fd, c.s.buf)
	switch {
	case err == syscall.EINTR:
		return true
	case err == syscall.EAGAIN:
		return false
	case err != nil:
		c.close()
		return false
	}
	c.ended = n == 0
	// A read that does not fill the buffer has emptied the socket, unless the
	// event reports that the end follows.
	return c.serve(c.s.buf[:n]) &&
		(n == len(c.s.buf) || e&(watch.PeerHangUp|watch.HangUp|watch.Error) != 0)
}

// resume continues when the socket has room for output.
func (c *conn) resume() {
	if !c.send(c.out) {
		return
	}
	c.out = nil
	if c.last {
		c.finish()
	} else if c.serve(nil) {
		c.writing = false
		c.wait(input) // reports data that have arrived meanwhile
	}
}

// serve answers the requests in b, which follows c.in, and reports whether the
// connection is ready to read more.
func (c *conn) serve(b []byte) bool {
	if len(c.in) > 0 {
		c.in = append(c.in, b...)
		b = c.in
	}
	for full := true; full; {
		b, full = c.answer(b)
		sent := c.send(c.s.out)
		if c.fd < 0 {
			return false
		}
		if !sent {
			c.hold(b)
			return false
		}
		if c.last {
			c.finish()
			return false
		}
	}
	c.hold(b)
	if c.ended {
		c.close()
	}
	return !c.ended
}

// hold keeps the unused part of the input.
func (c *conn) hold(b []byte) {
	if len(b) == 0 {
		c.in = nil
		return
	}
	c.in = append(c.in[:0], b...)
}

// answer puts answers to the requests in b into the server's output until no
// complete request is left or the output is full. It returns the rest of b and
// whether the output is full.
func (c *conn) answer(b []byte) (rest []byte, full bool) {
	s := c.s
	s.out = s.out[:0]
	for !c.last {
		n := min(c.skip, int64(len(b)))
		c.skip -= n
		if b = b[n:]; len(b) == 0 {
			break
		}
		if len(s.out) >= maxOut {
			return b, true
		}
		r, used, err := framing.ParseHead(b, maxHead)
		switch {
		case err == nil && used == 0 && c.ended:
			err = io.ErrUnexpectedEOF // the rest of the request will not arrive
		case err == nil && used == 0:
			return b, false
		case r.Length > maxBody:
			err = &framing.StatusError{Code: http.StatusRequestEntityTooLarge, Reason: "the body is too long"}
		}
		if err != nil {
			s.out = framing.AppendRefusal(s.out, err)
			c.last, c.refused = true, true
			break
		}
		b = b[used:]
		c.skip = r.Length
		if r.Continue {
			s.out = append(s.out, framing.Continue...)
		}
		r.Close = r.Close || s.over
		s.out = respond(s.out, &r)
		c.last = r.Close
	}
	return b, false
}

// send writes b, keeps the part that the socket does not accept, and reports
// whether it accepted all.
func (c *conn) send(b []byte) bool {
	for len(b) > 0 {
		n, err := syscall.Write(c.fd, b)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			c.out = append(c.out[:0], b...)
			if !c.writing {
				c.writing = true
				c.wait(watch.Write)
			}
			return false
		case err != nil:
			c.close()
			return false
		default:
			b = b[n:]
			c.timer.Reset(c.s.idle)
		}
	}
	return true
}

// wait changes what the connection waits for.
func (c *conn) wait(e watch.Events) {
	c.once = false
	if c.s.over && e == input && c.resting() {
		c.close()
	} else if err := c.s.l.Modify(c.fd, e, watch.Edge); err != nil {
		c.close()
	}
}

// finish ends a connection whose output was sent. When unread input may be left,
// closing would reset the connection, and the peer might lose the answer. finish
// then waits a while until the peer ends the connection.
func (c *conn) finish() {
	if c.ended || !c.refused && c.skip == 0 {
		c.close()
		return
	}
	if err := syscall.Shutdown(c.fd, syscall.SHUT_WR); err != nil {
		c.close()
		return
	}
	c.lingers, c.in = true, nil
	c.timer.Reset(lingering)
	c.wait(input)
}

// discard reads and drops input.
func (c *conn) discard() {
	for {
		n, err := syscall.Read(c.fd, c.s.buf)
		switch {
		case err == syscall.EINTR:
		case err == syscall.EAGAIN:
			return
		case err != nil || n == 0:
			c.close()
			return
		}
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
