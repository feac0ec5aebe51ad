// SPDX-License-Identifier: MIT

package main

import (
	"net"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/unet/event"
)

// end is one of the two connections of a pair. Both are served by one loop, so that their
// callbacks need no locks.
type end struct {
	p       *proxy
	pair    *pair
	self    *event.Conn // nil before OnOpen
	other   *end
	counter *atomic.Int64 // of the proxy, for what this end has sent
	bytes   int64
	eof     bool // this end sends nothing more
	closed  bool
}

// pair counts its open ends.
type pair struct {
	backend *backend
	open    atomic.Int32
}

// lastWords is the time that an end has to take what is pending after the other has failed.
const lastWords = 10 * time.Second

func endOf(c *event.Conn) *end { return c.Value().(*end) }

// callbacks are the functions of all connections that callbacks serve.
var callbacks = event.Handler{
	OnOpen:     func(c *event.Conn) { endOf(c).opened(c) },
	OnData:     func(c *event.Conn, data []byte) { endOf(c).data(data) },
	OnWritable: func(c *event.Conn) { endOf(c).other.self.ResumeRead() },
	OnEOF:      func(c *event.Conn) { endOf(c).ended() },
	OnTimer:    func(c *event.Conn) { c.Abort() },
	OnClose:    func(c *event.Conn, _ error) { endOf(c).gone() },
}

// startCallbacks starts the loops.
func (p *proxy) startCallbacks(mode features.Mode) (err error) {
	if mode == features.ModePlain {
		mode = features.ModeEpoll
	}
	p.loops, err = event.New(nil, callbacks, event.Options{Mode: mode})
	return err
}

// enroll makes a loop serve a client and its connection to a backend.
func (p *proxy) enroll(client, server net.Conn, b *backend) {
	both := &pair{backend: b}
	both.open.Store(2)
	from := &end{p: p, pair: both, counter: &p.toBackends}
	to := &end{p: p, pair: both, counter: &p.toClients, other: from}
	from.other = to
	p.all.Add(1)
	p.forget(client) // Enroll takes it over
	c, err := p.loops.Enroll(client, event.ConnOptions{Value: from})
	if err != nil {
		_, _ = client.Close(), server.Close()
		from.leave()
		to.leave()
		return
	}
	if _, err := p.loops.Enroll(server, event.ConnOptions{Value: to, Beside: c}); err != nil {
		_ = server.Close()
		to.leave()
		c.Abort()
	}
}

// opened begins to read when both ends are open.
func (e *end) opened(c *event.Conn) {
	e.self = c
	c.SetFullDuplex(true)
	switch {
	case e.other.closed:
		_ = c.Close()
	case e.other.self == nil:
		c.PauseRead() // until the other is open
	default:
		e.other.self.ResumeRead()
	}
}

func (e *end) data(p []byte) {
	e.bytes += int64(len(p))
	to := e.other.self
	if _, err := to.Write(p); err != nil {
		e.self.Abort()
		return
	}
	if to.Full() {
		e.self.PauseRead()
	}
}

// ended forwards the end of a stream. The pair ends when both streams have ended.
func (e *end) ended() {
	e.eof = true
	_ = e.other.self.CloseWrite()
	if e.other.eof {
		_, _ = e.self.Close(), e.other.self.Close()
	}
}

// gone is called when the connection is closed, and closes the other one.
func (e *end) gone() {
	e.closed = true
	e.counter.Add(e.bytes)
	if to := e.other; to.self != nil && !to.closed {
		_ = to.self.Close()
		to.self.SetTimer(lastWords)
	}
	e.leave()
}

// leave ends the pair when its last end has left.
func (e *end) leave() {
	if e.pair.open.Add(-1) == 0 {
		e.pair.backend.open.Add(-1)
		e.p.all.Done()
	}
}
