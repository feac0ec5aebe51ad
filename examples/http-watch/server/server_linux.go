// SPDX-License-Identifier: MIT

package server

import (
	"context"
	"errors"
	"log"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/watch"
)

const (
	bufferSize = 64 << 10
	acceptMost = 64                     // connections taken in one turn
	pause      = 100 * time.Millisecond // when the process is out of descriptors
)

// Server is an event loop with a listener and its connections. All of it belongs
// to the goroutine that is in Run.
type Server struct {
	l     *watch.Loop
	ln    *os.File // nil once it is closed
	fd    int      // of ln
	addr  net.Addr
	idle  time.Duration
	grace time.Duration // the time that connections have to finish at the end
	buf   []byte        // input and output of the callback in progress: connections
	out   []byte        // without unfinished work hold no memory for them
	conns map[*conn]struct{}
	over  bool
}

// New listens; nothing is accepted before Run. The caller closes the server.
func New(c Config) (*Server, error) {
	l, err := watch.NewLoop(c.Watch)
	if err != nil {
		return nil, err
	}
	s := &Server{l: l, idle: c.Idle, grace: 800 * time.Millisecond, buf: make([]byte, bufferSize), conns: map[*conn]struct{}{}}
	if err := s.listen(c.Addr); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Addr returns the address on which the server listens.
func (s *Server) Addr() net.Addr { return s.addr }

// Backend returns the backend of the loop and the reason for the choice.
func (s *Server) Backend() (name, reason string) { return s.l.Backend() }

// ShutdownOn makes each of the signals end Run after the connections have finished
// or the time for that is over. It must be called before Run.
func (s *Server) ShutdownOn(signals ...os.Signal) {
	for _, sig := range signals {
		s.l.OnSignal(sig, s.shutdown)
	}
}

// Run serves until a signal has shut the server down; then it returns nil. If the
// context ends first, it returns its cause.
func (s *Server) Run(ctx context.Context) error { return s.l.Run(ctx) }

// listen takes over a socket of package net, which resolves the address.
func (s *Server) listen(addr string) error {
	ln, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	defer ln.Close() // the file is a duplicate
	if s.ln, err = ln.(*net.TCPListener).File(); err != nil {
		return err
	}
	s.addr, s.fd = ln.Addr(), int(s.ln.Fd())
	if err := syscall.SetNonblock(s.fd, true); err != nil {
		return err
	}
	return s.l.Add(s.fd, watch.Read, watch.Edge, s.accept)
}

// accept takes connections until none waits. When it stops earlier, Modify has
// the loop report those that are left.
func (s *Server) accept(watch.Events) {
	for range acceptMost {
		fd, _, err := syscall.Accept4(s.fd, syscall.SOCK_NONBLOCK|syscall.SOCK_CLOEXEC)
		switch {
		case err == nil:
			s.open(fd)
		case err == syscall.EAGAIN:
			return
		case err == syscall.EINTR || err == syscall.ECONNABORTED:
		default: // no descriptors or no memory: trying again at once would not help
			s.l.AfterFunc(pause, s.again)
			return
		}
	}
	s.again()
}

func (s *Server) again() {
	if s.ln != nil {
		_ = s.l.Modify(s.fd, watch.Read, watch.Edge)
	}
}

// shutdown stops listening, lets connections finish for a while, and ends Run.
func (s *Server) shutdown() {
	if s.over {
		return
	}
	s.over = true
	s.unlisten()
	for c := range s.conns {
		if c.resting() {
			c.close()
		}
	}
	if len(s.conns) > 0 {
		s.l.AfterFunc(s.grace, s.l.Stop)
		return
	}
	s.l.Stop()
}

func (s *Server) unlisten() {
	if s.ln != nil {
		_ = s.l.Remove(s.fd)
		_ = s.ln.Close()
		s.ln = nil
	}
}

// Close closes all connections and frees all resources. The loop must not be running.
func (s *Server) Close() {
	s.unlisten()
	for c := range s.conns {
		c.close()
	}
	if err := s.l.Close(); err != nil && !errors.Is(err, watch.ErrClosed) {
		log.Print(err)
	}
}
