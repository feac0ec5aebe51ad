// SPDX-License-Identifier: MIT

package stress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/reactor"
	"github.com/ringside-io/ringside/uring"
)

func isErrno(err error, errno syscall.Errno) bool { return errors.Is(err, errno) }

// simConn uses the engine as a server would: a connection whose peer sends all data back.
type simConn struct {
	net.Conn // the other methods are not called
	w        *simEnv
	pipe     simPipe
	open     context.Context
	close    context.CancelCauseFunc
	reading  sync.WaitGroup

	mu       sync.Mutex
	sent     uint64
	got      uint64
	half     bool
	deadline time.Time
}

func (w *simEnv) Dial(first uint64) (Conn, error) {
	c := &simConn{w: w, pipe: simPipe{w.k, w.k.PipeFrom(first)}, sent: first, got: first}
	c.open, c.close = context.WithCancelCause(context.Background())
	return c, nil
}

func (c *simConn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, wrong := differs(p, c.sent); wrong {
		return 0, fmt.Errorf("byte %d differs", at)
	}
	c.sent += uint64(len(p))
	return len(p), c.pipe.Feed(len(p))
}

func (c *simConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	if c.open.Err() != nil {
		c.mu.Unlock()
		return 0, context.Cause(c.open)
	}
	ctx, cancel := c.open, func() {}
	if !c.deadline.IsZero() {
		ctx, cancel = context.WithDeadlineCause(c.open, c.deadline, os.ErrDeadlineExceeded)
	}
	end := c.half && c.got == c.sent
	c.reading.Add(1)
	c.mu.Unlock()
	defer c.reading.Done()
	defer cancel()
	if end {
		return 0, io.EOF
	}
	op := reactor.Op{Buf: p, Bytes: len(p)}
	op.SQE.Read(uring.Fd(c.pipe.fd), p, 0)
	res := c.w.engine.DoContext(ctx, &op)
	switch {
	case res.Cause != nil:
		return 0, res.Cause
	case res.Res < 0:
		return 0, res.Errno()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.got += uint64(res.Res)
	return int(res.Res), nil
}

func (c *simConn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deadline = t
	return nil
}

func (c *simConn) CloseWrite() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.half = true
	return nil
}

func (c *simConn) Close() error {
	c.mu.Lock()
	c.close(net.ErrClosed)
	c.mu.Unlock()
	c.reading.Wait()
	return nil
}

// simWatch is a stream of polls that is started again when it ends.
type simWatch struct {
	w     *simEnv
	pipe  simPipe
	ended chan struct{} // a stream exists
	over  chan struct{} // no other stream follows

	mu     sync.Mutex
	id     reactor.ID
	closed bool
	dead   bool          // its ring has failed
	seen   chan struct{} // closed by the report after a poke
}

// Watch supports one mode only.
func (w *simEnv) Watch(int) (Watch, error) {
	s := &simWatch{
		w: w, pipe: simPipe{w.k, w.k.PipeFrom(0)}, ended: make(chan struct{}, 1), over: make(chan struct{}), seen: make(chan struct{}),
	}
	go s.run()
	return s, nil
}

func (s *simWatch) run() {
	defer close(s.over)
	op := new(reactor.Op)
	op.SQE.PollMultishot(uring.Fd(s.pipe.fd), 1)
	for {
		id, err := s.w.polls.Stream(op, s.event)
		if s.w.Broken(err) {
			s.die()
			return
		}
		if err != nil {
			panic(err) // there is space for all
		}
		s.mu.Lock()
		s.id = id
		closed := s.closed
		s.mu.Unlock()
		if closed {
			_ = s.w.polls.Cancel(id)
		}
		if <-s.ended; s.isClosed() {
			return
		}
	}
}

// die ends all waits: there will be no more reports.
func (s *simWatch) die() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dead = true
	s.report()
}

func (s *simWatch) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

func (s *simWatch) event(res reactor.Result) {
	if res.Cause == nil && res.Res > 0 {
		s.mu.Lock()
		s.report()
		s.mu.Unlock()
	}
	if !res.More() {
		s.ended <- struct{}{}
	}
}

// report wakes the waiting goroutines. The caller holds mu.
func (s *simWatch) report() {
	select {
	case <-s.seen:
	default:
		close(s.seen)
	}
}

func (s *simWatch) Poke(n int) error {
	s.mu.Lock()
	if s.report(); !s.dead {
		s.seen = make(chan struct{})
	}
	s.mu.Unlock()
	return s.pipe.Feed(n)
}

func (s *simWatch) Seen() {
	s.mu.Lock()
	seen := s.seen
	s.mu.Unlock()
	<-seen
}

func (s *simWatch) Change(int) error { return nil }

// Replace does not get the same number: the simulated kernel uses each number once.
func (s *simWatch) Replace(mode, n int, _ bool) (Watch, error) {
	if err := errors.Join(s.Poke(n), s.Close()); err != nil {
		return nil, err
	}
	return s.w.Watch(mode)
}

func (s *simWatch) Close() error {
	s.mu.Lock()
	s.closed = true
	id := s.id
	s.mu.Unlock()
	_ = s.w.polls.Cancel(id) // or run does it, or finds that there is none
	<-s.over
	return nil
}
