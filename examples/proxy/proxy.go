// SPDX-License-Identifier: MIT

package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/examples/internal/accept"
	"github.com/ringside-io/ringside/unet"
	"github.com/ringside-io/ringside/unet/event"
)

// backend is one server to which connections are forwarded.
type backend struct {
	address               string
	up                    atomic.Bool
	open, total, failures atomic.Int64
}

// proxy forwards connections to backends. Its methods may be called concurrently.
type proxy struct {
	dialer   unet.Dialer
	path     string        // of the request of a check; "" if connecting suffices
	patience time.Duration // for the answer to it
	tls      *tls.Config   // nil if the clients do not use TLS
	loops    *event.Server // with -callbacks, otherwise nil
	backends []*backend

	accepted, refused, toBackends, toClients atomic.Int64

	all  sync.WaitGroup // the connections
	mu   sync.Mutex
	open map[net.Conn]struct{} // of clients and of backends
	over bool                  // cut was called
}

// handshakeTime is the time that a client has for the TLS handshake.
const handshakeTime = 10 * time.Second

// serve accepts connections until the listener is closed.
func (p *proxy) serve(l net.Listener) error {
	for {
		c, err := l.Accept()
		if accept.Retry(context.Background(), err) {
			continue
		}
		if err != nil {
			return err
		}
		p.accepted.Add(1)
		p.all.Go(func() { p.pass(c) })
	}
}

// pass connects a client to a backend and returns when both directions have ended.
func (p *proxy) pass(client net.Conn) {
	if !p.keep(client) {
		return
	}
	defer p.drop(client)
	client, ok := p.secure(client)
	if !ok {
		return
	}
	b, server := p.connect()
	if b == nil {
		p.refused.Add(1)
		return
	}
	if p.loops != nil {
		p.enroll(client, server, b)
		return
	}
	defer b.open.Add(-1)
	if !p.keep(server) {
		return
	}
	defer p.drop(server)
	var back sync.WaitGroup
	back.Go(func() { copyTo(client, server, &p.toClients) })
	copyTo(server, client, &p.toBackends)
	back.Wait()
}

// copyTo copies until the end of a stream and forwards the end. After an error it closes
// both connections, because no direction can continue. A TLS client gets no close_notify then,
// which would tell it that the stream is complete.
func copyTo(to, from net.Conn, bytes *atomic.Int64) {
	n, err := io.Copy(to, from)
	bytes.Add(n)
	if err == nil {
		err = to.(interface{ CloseWrite() error }).CloseWrite()
	}
	if err != nil {
		for _, c := range []net.Conn{to, from} {
			if secure, ok := c.(*tls.Conn); ok {
				c = secure.NetConn()
			}
			_ = c.Close()
		}
	}
}

// secure does the TLS handshake if the clients use TLS, and reports whether it succeeded.
func (p *proxy) secure(client net.Conn) (net.Conn, bool) {
	if p.tls == nil {
		return client, true
	}
	c := tls.Server(client, p.tls)
	ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
	defer cancel()
	return c, c.HandshakeContext(ctx) == nil
}

// connect connects to the backend with the fewest connections, or to the next if that
// fails. It counts the connection as open. It returns nil if none can be reached.
func (p *proxy) connect() (*backend, net.Conn) {
	tried := make(map[*backend]bool)
	for {
		b := p.choose(tried)
		if b == nil {
			return nil, nil
		}
		tried[b] = true
		c, err := p.dialer.Dial("tcp", b.address)
		if err == nil {
			b.total.Add(1)
			return b, c
		}
		b.open.Add(-1)
		b.failures.Add(1)
		b.up.Store(false) // the next check may find it up again
	}
}

// choose returns the backend with the fewest connections among those that are up and were
// not tried, and counts one more. If none is up, it chooses among the others.
func (p *proxy) choose(tried map[*backend]bool) *backend {
	p.mu.Lock()
	defer p.mu.Unlock()
	var best *backend
	for _, b := range p.backends {
		if !tried[b] && (best == nil || b.better(best)) {
			best = b
		}
	}
	if best != nil {
		best.open.Add(1)
	}
	return best
}

func (b *backend) better(than *backend) bool {
	if up := b.up.Load(); up != than.up.Load() {
		return up
	}
	return b.open.Load() < than.open.Load()
}

// keepChecking checks the backends periodically.
func (p *proxy) keepChecking(interval time.Duration) {
	for range time.Tick(interval) {
		p.checkAll()
	}
}

func (p *proxy) checkAll() {
	var all sync.WaitGroup
	for _, b := range p.backends {
		all.Go(func() { p.check(b) })
	}
	all.Wait()
}

func (p *proxy) check(b *backend) {
	c, err := p.dialer.Dial("tcp", b.address)
	if err == nil {
		if p.path != "" {
			err = p.request(c, b)
		}
		_ = c.Close()
	}
	b.up.Store(err == nil)
}

// request sends a request for p.path, and returns an error unless the status is 2xx or
// 3xx. Unlike connecting, which the kernel answers, it finds a process that is stopped.
func (p *proxy) request(c net.Conn, b *backend) error {
	_ = c.SetDeadline(time.Now().Add(p.patience))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", p.path, b.address); err != nil {
		return err
	}
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return err
	}
	_ = r.Body.Close()
	if r.StatusCode < 200 || r.StatusCode >= 400 {
		return errors.New(r.Status)
	}
	return nil
}

// keep records a connection for cut. If cut was called already, keep closes the
// connection and returns false.
func (p *proxy) keep(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		_ = c.Close()
		return false
	}
	p.open[c] = struct{}{}
	return true
}

// drop closes a connection that was kept and not forgotten.
func (p *proxy) drop(c net.Conn) {
	if p.forget(c) {
		_ = c.Close()
	}
}

// forget undoes keep, and reports whether the connection was kept.
func (p *proxy) forget(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, kept := p.open[c]
	delete(p.open, c)
	return kept
}

// cut closes all connections, now and from now on.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	for c := range p.open {
		_ = c.Close()
	}
	if p.loops != nil {
		_ = p.loops.Close()
	}
}

// Stats are the counters of a proxy.
type Stats struct {
	Accepted   int64 // connections of clients
	Refused    int64 // those for which no backend was found
	ToBackends int64 // bytes of connections that have ended
	ToClients  int64
	Backends   map[string]BackendStats // by address
}

// BackendStats are the counters of a backend.
type BackendStats struct {
	Up       bool
	Open     int64 // connections
	Total    int64 // connections since the start
	Failures int64 // failed attempts to connect for a client
}

func (p *proxy) stats() Stats {
	s := Stats{Accepted: p.accepted.Load(), Refused: p.refused.Load(), ToBackends: p.toBackends.Load(),
		ToClients: p.toClients.Load(), Backends: make(map[string]BackendStats)}
	for _, b := range p.backends {
		s.Backends[b.address] = BackendStats{b.up.Load(), b.open.Load(), b.total.Load(), b.failures.Load()}
	}
	return s
}
