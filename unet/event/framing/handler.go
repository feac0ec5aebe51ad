// SPDX-License-Identifier: MIT

package framing

import (
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"sync"
	"time"

	"github.com/ringside-io/ringside/unet/event"
)

// HTTPOptions limit the requests of clients. 0 means the default.
type HTTPOptions struct {
	MaxHead int           // largest head in bytes; the default is 8 KiB
	MaxBody int           // largest body in bytes; the default is 1 MiB, and larger ones are refused with 413
	Idle    time.Duration // how long a connection may be without a complete request; the default is a minute
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
			e := &exchange{c: c, answer: answer, o: o}
			e.frames.split = e
			c.SetValue(e)
			c.SetTimer(o.Idle)
		},
		OnData:     func(c *event.Conn, data []byte) { of(c).feed(data) },
		OnWritable: func(c *event.Conn) { of(c).feed(nil) },
		OnEOF:      func(c *event.Conn) { of(c).finish() },
		OnShutdown: func(c *event.Conn) { of(c).finish() },
		OnTimer:    func(c *event.Conn) { of(c).late() },
	}
}

const (
	// lingering is how long a connection stays open after a refusal.
	lingering = 5 * time.Second
	// outPiece is the number of bytes from which responses are sent before more are
	// computed.
	outPiece = 64 << 10
)

// exchange is the state of an HTTP connection. As a splitter it finds the requests.
type exchange struct {
	c       *event.Conn
	answer  func(dst []byte, r *Request) []byte
	o       HTTPOptions
	frames  Frames
	req     Request
	need    int    // length of the request whose head was parsed, 0 before that
	out     []byte // answers, during feed
	served  bool   // a request was answered during feed
	paused  bool   // answers are pending: requests wait
	last    bool   // no request follows those that have arrived
	ending  bool   // no further request is taken
	pending int    // bytes when the timer fired
}

// next implements splitter. It stores the request in req.
func (e *exchange) next(p []byte, seen int) (int, []byte, error) {
	switch {
	case e.need > len(p):
		return 0, nil, nil
	case e.need > 0:
		seen = 0 // the head ends within the bytes seen
	}
	r, n, err := parseHead(p, seen, e.o.MaxHead)
	switch {
	case err != nil || n == 0:
		return 0, nil, err
	case r.Length > int64(min(e.o.MaxBody, math.MaxInt-n)): // their sum is an int
		return 0, nil, refused(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body is longer than %d bytes", e.o.MaxBody))
	}
	whole := n + int(r.Length)
	if whole > len(p) {
		if e.need = whole; r.Continue && n == len(p) {
			e.out = append(e.out, Continue...)
		}
		return 0, nil, nil
	}
	e.req, e.need = r, 0
	e.req.Body = p[n:whole]
	return whole, p[:whole], nil
}

// rest implements splitter. The handler does not call it.
func (*exchange) rest([]byte) (int, []byte, error) { return 0, nil, io.ErrUnexpectedEOF }

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
	err := e.frames.Feed(data, e.request)
	var bad *StatusError
	if errors.As(err, &bad) {
		e.out = AppendRefusal(e.out, bad)
	}
	e.flush()
	if cap(e.out) <= 4*outPiece {
		*buf = e.out
		outs.Put(buf)
	}
	e.out = nil
	switch {
	case bad != nil, e.ending && e.frames.Buffered() > 0:
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

// request responds to the request in req.
func (e *exchange) request([]byte) error {
	e.served = true
	e.out = e.answer(e.out, &e.req)
	if e.req.Close {
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
// that is ending is still open. A peer that reads pending bytes gets more time.
func (e *exchange) late() {
	n := e.c.Pending()
	if n > 0 && (e.pending == 0 || n < e.pending) {
		e.pending = n
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
