// SPDX-License-Identifier: MIT

package framing

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// HTTPOptions limit the requests of clients. 0 means the default.
type HTTPOptions struct {
	MaxHead int           // largest head in bytes; the default is 8 KiB
	MaxBody int           // largest body in bytes; the default is 1 MiB, and larger ones are refused with 413
	Idle    time.Duration // how long a connection may be without a complete request; the default is a minute
	// Stream, if it is set, is called with the head of each request that has a body. If it
	// returns a writer, each piece of the body is written to that when it arrives, instead
	// of being collected: [Request].Body stays nil, MaxBody does not count, and Idle is how
	// long the connection may be without a byte of the body. The piece is valid until Write
	// returns, and Write must not block. answer is called after the last piece. An error of
	// Stream or Write refuses the request, with the code of a [*StatusError] or 500. If the
	// body ends early, Close is called if the writer is an io.Closer.
	Stream func(r *Request) (io.Writer, error)
}

// HTTP returns a handler of package event that serves HTTP/1.1. It calls answer for each
// request, in order, one at a time for each connection. answer appends the response to
// dst, usually by [Request.AppendResponse], and returns the extended slice. The request
// is valid until answer returns. The responses to one piece of input are sent together.
// Nothing is read while [event.Options].WriteLimit bytes are pending. The handler uses
// the connection's value and timer.
//
// A connection ends after the response to a request with Close set, and after
// HTTPOptions.Idle. In [event.Server.Shutdown] it ends after the responses to the
// requests that have arrived. After it has refused a request, the server waits up to 5
// seconds for the peer to end the connection, so that the peer gets the response.
func HTTP(answer func(dst []byte, r *Request) []byte, o HTTPOptions) event.Handler {
	if o.MaxHead <= 0 {
		o.MaxHead = 8 << 10
	}
	if o.MaxBody <= 0 {
		o.MaxBody = 1 << 20
	}
	if o.Idle <= 0 {
		o.Idle = time.Minute
	}
	of := func(c *event.Conn) *exchange { return c.Value().(*exchange) }
	return event.Handler{
		OnOpen: func(c *event.Conn) {
			e := &exchange{c: c, answer: answer, o: &o}
			e.in.o, e.in.each, e.in.frames.split = &o, e.request, &e.in
			c.SetValue(e)
			c.SetTimer(o.Idle)
		},
		OnData:      func(c *event.Conn, data []byte) { of(c).feed(data) },
		ReceiveInto: func(c *event.Conn) []byte { return of(c).in.receiveInto() },
		OnWritable:  func(c *event.Conn) { of(c).feed(nil) },
		OnEOF:       func(c *event.Conn) { of(c).finish() },
		OnShutdown:  func(c *event.Conn) { of(c).finish() },
		OnTimer:     func(c *event.Conn) { of(c).late() },
		OnClose:     func(c *event.Conn, _ error) { of(c).in.abandon() },
	}
}

const (
	// lingering is how long a connection stays open after a refusal.
	lingering = 5 * time.Second
	// outPiece is the number of bytes from which responses are sent before more are
	// computed.
	outPiece = 64 << 10
)

// exchange is the state of an HTTP connection.
type exchange struct {
	c       *event.Conn
	answer  func(dst []byte, r *Request) []byte
	o       *HTTPOptions
	in      requests
	out     []byte // answers, during feed
	served  bool   // a request was answered during feed
	paused  bool   // answers are pending: requests wait
	last    bool   // no request follows those that have arrived
	ending  bool   // no further request is taken
	pending int    // bytes when the timer fired
	left    int64  // of a streamed body, when the timer fired
}

// outs are buffers for responses, so that idle connections hold none.
var outs = sync.Pool{New: func() any { return new([]byte) }}

// feed responds to the requests that are complete.
func (e *exchange) feed(data []byte) {
	if e.ending {
		return
	}
	if e.paused {
		e.paused = false
		e.c.ResumeRead()
	}
	buf := outs.Get().(*[]byte)
	e.out, e.served = (*buf)[:0], false
	err := e.in.feed(data)
	var bad *StatusError
	if errors.As(err, &bad) {
		e.out = AppendRefusal(e.out, bad)
	} else if e.in.waits() {
		e.out = append(e.out, Continue...)
	}
	e.flush()
	if cap(e.out) <= 4*outPiece {
		*buf = e.out
		outs.Put(buf)
	}
	e.out = nil
	switch {
	case bad != nil, e.ending && e.in.frames.Buffered() > 0:
		// Closing with unread input resets the connection, and the peer might lose the
		// response.
		e.ending = true
		_ = e.c.CloseWrite()
		e.c.SetTimer(lingering)
	case e.ending, e.last && !e.paused:
		e.ending = true
		_ = e.c.Close()
	default:
		if e.paused {
			e.c.PauseRead()
		}
		if e.served {
			e.pending = 0
			e.c.SetTimer(e.o.Idle)
		}
	}
}

// request responds to a request.
func (e *exchange) request(r *Request) error {
	e.served, e.left = true, 0
	e.out = e.answer(e.out, r)
	if r.Close {
		e.ending = true
		return ErrPause
	}
	if len(e.out) < outPiece {
		return nil
	}
	if e.flush(); e.c.Full() {
		e.paused = true
		return ErrPause
	}
	return nil
}

// arrived reports whether bytes of a body that is streamed have arrived since the last call.
func (e *exchange) arrived() bool {
	before := e.left
	e.left = e.in.body.left
	return e.in.streams() && e.left != before
}

func (e *exchange) flush() {
	if len(e.out) > 0 {
		_, _ = e.c.Write(e.out) // It fails when the connection has ended.
		e.out = e.out[:0]
	}
}

// finish ends the connection when it has responded to all requests that have arrived.
func (e *exchange) finish() {
	if e.last = true; !e.paused {
		e.ending = true
		_ = e.c.Close()
	}
}

// late is called when no complete request has arrived for too long, or when a connection
// that is ending is still open. A peer that reads pending bytes, or sends a body that is
// streamed, gets more time.
func (e *exchange) late() {
	n := e.c.Pending()
	if n > 0 && (e.pending == 0 || n < e.pending) {
		e.pending = n
		e.c.SetTimer(e.o.Idle)
		return
	}
	if n == 0 && e.arrived() {
		e.c.SetTimer(e.o.Idle)
		return
	}
	if n > 0 || e.ending {
		e.c.Abort()
		return
	}
	e.ending = true
	_ = e.c.Close()
}
