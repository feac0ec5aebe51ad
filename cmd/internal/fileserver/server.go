// SPDX-License-Identifier: MIT

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
	"time"
)

// Limits on what a client may make the server wait for and keep.
const (
	headerTimeout  = 10 * time.Second
	requestTimeout = 30 * time.Second // header and whatever body comes with it
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

// NewServer returns a server for a handler. What goes wrong with connections is told to errors.
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

// Shutdown stops accepting, lets what is being answered come to its end until ctx ends, then ends what
// is left; the error says that there was an answer among it. A connection on which nothing has been asked for
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
// environment says how (GOGC).
func TuneGC() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
}
