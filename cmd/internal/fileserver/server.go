// SPDX-License-Identifier: MIT

// Package fileserver serves the files below a directory over HTTP: package net/http with names
// resolved by ufile.Root and bytes sent in the way that was fastest (docs/serve.md).
//
// Nothing outside of the directory is served, for any request and symbolic link.
// http.ServeContent handles ranges, conditions and their errors.
package fileserver

import (
	"context"
	"crypto/tls"
	"errors"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/unet/ktls"
)

// Limits for slow and large requests.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second // header and body
	idleTimeout    = 2 * time.Minute
	maxHeader      = 16 << 10
)

// silentFor is how long a shutdown waits for the first request of a connection.
const silentFor = 100 * time.Millisecond

// Server is an http.Server with limits against slow and greedy clients.
type Server struct {
	http   http.Server
	phases phases
}

// NewServer returns a server for a handler. Errors of connections are logged to errors.
func NewServer(h http.Handler, errors *log.Logger) *Server {
	s := &Server{http: http.Server{
		Handler:           h,
		ErrorLog:          errors,
		ReadHeaderTimeout: headerTimeout,
		ReadTimeout:       requestTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
		ConnContext:       withConn,
	}}
	s.http.ConnState = s.phases.change
	return s
}

// Serve serves on a listener until Shutdown, after which it returns nil, or until accepting fails
// permanently. With certificates it uses TLS, and HTTP/2 with clients that support it. The listener is
// closed when it returns.
func (s *Server) Serve(ln net.Listener, certificates ...tls.Certificate) error {
	var err error
	if len(certificates) > 0 {
		ln = listener{ln}
		s.http.TLSConfig = &tls.Config{Certificates: certificates}
		err = s.http.ServeTLS(ln, "", "")
	} else {
		err = s.http.Serve(listener{ln})
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// ServeKTLS is Serve with TLS that the kernel encrypts where it can. It speaks HTTP/1.1 only: the
// frames of HTTP/2 cannot be sent by sendfile. With required, handshakes fail where the kernel cannot.
func (s *Server) ServeKTLS(ln net.Listener, required bool, certificates ...tls.Certificate) error {
	config := &tls.Config{Certificates: certificates, NextProtos: []string{"http/1.1"}}
	if required {
		config.MinVersion = tls.VersionTLS13
	}
	return s.Serve(ktls.NewListener(ln, &ktls.Config{TLS: config, Require: required}))
}

// Shutdown stops accepting and waits for requests in progress until ctx ends. It then closes all
// connections; the error reports that a request was cut off. It does not wait for connections
// without a request.
func (s *Server) Shutdown(ctx context.Context) error {
	silent := time.AfterFunc(silentFor, s.phases.endSilent)
	defer silent.Stop()
	err := s.http.Shutdown(ctx)
	if err == nil {
		return nil
	}
	cut := s.phases.answering.Load() > 0
	closed := s.http.Close()
	if errors.Is(err, ctx.Err()) && !cut {
		err = nil
	}
	return errors.Join(err, closed)
}

// gcPercent makes the collector run when the heap has grown ninefold: a file server keeps little
// memory, so its heap stays small.
const gcPercent = 800

// TuneGC sets up the garbage collector of a process that only serves files, unless the environment
// does (GOGC).
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// phases records the state of each connection for Shutdown: net/http waits for seconds for a
// connection without a request, such as browsers open in advance, and does not report whether a
// connection that it closed was in the middle of an answer.
type phases struct {
	answering atomic.Int64

	mu     sync.Mutex
	silent map[*conn]struct{} // connections without a request so far
	ended  bool
}

// change is the ConnState function of a server.
func (p *phases) change(nc net.Conn, to http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	if to == http.StateNew {
		p.begin(c)
		return
	}
	switch from := http.ConnState(c.phase.Swap(int32(to))); {
	case from == http.StateNew:
		p.mu.Lock()
		delete(p.silent, c)
		p.mu.Unlock()
	case from == http.StateActive:
		p.answering.Add(-1)
	}
	if to == http.StateActive {
		p.answering.Add(1)
	}
}

// begin adds a connection, or closes it if the server is ending.
func (p *phases) begin(c *conn) {
	p.mu.Lock()
	ended := p.ended
	if !ended {
		if p.silent == nil {
			p.silent = map[*conn]struct{}{}
		}
		p.silent[c] = struct{}{}
	}
	p.mu.Unlock()
	if ended {
		_ = c.Close() // no client waits for a response
	}
}

// endSilent closes the connections without a request, now and from now on.
func (p *phases) endSilent() {
	p.mu.Lock()
	p.ended = true
	silent := p.silent
	p.silent = nil
	p.mu.Unlock()
	for c := range silent {
		_ = c.Close() // no client waits for a response
	}
}
