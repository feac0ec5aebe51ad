// SPDX-License-Identifier: MIT

// Package fileserver serves the files below a directory over HTTP: package net/http with names
// resolved by ufile.Root and bytes sent the way that measured best (docs/serve.md).
//
// Nothing outside of the directory is served, for any request and symbolic link. Ranges,
// conditions and the errors of both are http.ServeContent's.
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
)

// Limits for slow and large requests.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second // header and body
	idleTimeout    = 2 * time.Minute
	maxHeader      = 16 << 10
)

// silentFor is how long a request may still be on its way when the server is to end.
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

// Serve serves on a listener until Shutdown, after which it returns nil, or until accepting fails for
// good. With certificates it speaks TLS, and HTTP/2 with clients that can. The listener is closed
// when it returns.
func (s *Server) Serve(ln net.Listener, certificates ...tls.Certificate) error {
	ln = listener{ln}
	var err error
	if len(certificates) > 0 {
		s.http.TLSConfig = &tls.Config{Certificates: certificates}
		err = s.http.ServeTLS(ln, "", "")
	} else {
		err = s.http.Serve(ln)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown stops accepting and waits for requests in progress until ctx ends, then closes what
// is left; the error reports that a request was cut off. A connection without a request
// is not waited for.
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

// gcPercent makes the collector run when the heap has grown ninefold: a server of files keeps next to
// nothing, so that its heap is small in any case.
const gcPercent = 800

// TuneGC sets up the garbage collector of a process that does nothing but serve files, unless the
// environment does (GOGC).
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}

// phases records the state of each connection for Shutdown: net/http waits for seconds for a
// connection on which no request has come yet, such as browsers open ahead, and does not tell whether what
// it waited for in vain was an answer.
type phases struct {
	answering atomic.Int64

	mu     sync.Mutex
	silent map[*conn]struct{} // those without a request so far
	ended  bool
}

// change is the ConnState of a server.
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

// begin enters a connection, or closes it if it comes too late.
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

// endSilent closes the connections that have not asked for anything, now and from now on.
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
