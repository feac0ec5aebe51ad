// SPDX-License-Identifier: MIT

package main

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
	grace      = 800 * time.Millisecond // the time that connections have to finish at the end
)

// server is an event loop with a listener and its connections. All of it belongs
// to the goroutine that runs the loop.
type server struct {
	l     *watch.Loop
	ln    *os.File // nil once it is closed
	fd    int      // of ln
	addr  net.Addr
	idle  time.Duration
	buf   []byte // input is echoed at once, so connections share it
	conns map[*conn]struct{}
	over  bool
}

func serve(addr string, idle time.Duration) error {
	s, err := newServer(addr, idle)
	if err != nil {
		return err
	}
	defer s.close()
	name, reason := s.l.Backend()
	log.Printf("listening on %v, waiting with %s: %s", s.addr, name, reason)
	s.l.OnSignal(os.Interrupt, s.shutdown)
	s.l.OnSignal(syscall.SIGTERM, s.shutdown)
	return s.l.Run(context.Background())
}

// newServer listens; nothing is accepted before the loop runs.
func newServer(addr string, idle time.Duration) (*server, error) {
	l, err := watch.NewLoop(watch.Options{})
	if err != nil {
		return nil, err
	}
	s := &server{l: l, idle: idle, buf: make([]byte, bufferSize), conns: map[*conn]struct{}{}}
	if err := s.listen(addr); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// listen takes over a socket of package net, which resolves the address.
func (s *server) listen(addr string) error {
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
func (s *server) accept(watch.Events) {
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

func (s *server) again() {
	if s.ln != nil {
		_ = s.l.Modify(s.fd, watch.Read, watch.Edge)
	}
}

// shutdown stops listening, lets connections finish for a while, and ends Run.
func (s *server) shutdown() {
	if s.over {
		return
	}
	s.over = true
	s.unlisten()
	for c := range s.conns {
		if len(c.out) == 0 {
			c.close()
		}
	}
	if len(s.conns) > 0 {
		s.l.AfterFunc(grace, s.l.Stop)
		return
	}
	s.l.Stop()
}

func (s *server) unlisten() {
	if s.ln != nil {
		_ = s.l.Remove(s.fd)
		_ = s.ln.Close()
		s.ln = nil
	}
}

// close frees all resources. The loop must not be running.
func (s *server) close() {
	s.unlisten()
	for c := range s.conns {
		c.close()
	}
	if err := s.l.Close(); err != nil && !errors.Is(err, watch.ErrClosed) {
		log.Print(err)
	}
}
