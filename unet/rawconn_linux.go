// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"syscall"
)

// rawConn gives access to a descriptor.
type rawConn struct {
	s    *sock
	wrap func(op string, err error) error
}

// SyscallConn returns access to the descriptor. As in package net, the descriptor is
// non-blocking. RawConn.Read and RawConn.Write call their function each time the socket
// is ready. They return when the function returns true, the deadline passes or the
// connection is closed.
func (c *conn) SyscallConn() (syscall.RawConn, error) {
	return &rawConn{&c.sock, c.rawError}, nil
}

// rawListener is rawConn for a listener, on which Read and Write fail, as in
// package net.
type rawListener struct{ rawConn }

func (*rawListener) Read(func(fd uintptr) bool) error  { return syscall.EINVAL }
func (*rawListener) Write(func(fd uintptr) bool) error { return syscall.EINVAL }

func (c *conn) rawError(op string, err error) error {
	if op == "raw-control" {
		return &net.OpError{Op: op, Net: c.network, Addr: c.local, Err: err}
	}
	return c.opError(op, err)
}

func (r *rawConn) done(op string, err error) error {
	if err != nil {
		return r.wrap(op, err)
	}
	return nil
}

func (r *rawConn) Control(f func(fd uintptr)) error {
	return r.done("raw-control", r.s.use(func(fd int) error {
		r.s.moreLikely.Store(true)
		f(uintptr(fd))
		return nil
	}))
}

func (r *rawConn) Read(f func(fd uintptr) bool) error {
	s := r.s
	s.moreLikely.Store(true) // f may leave data
	return r.done("raw-read", s.whenReady(&s.rd, f))
}

func (r *rawConn) Write(f func(fd uintptr) bool) error {
	s := r.s
	s.moreLikely.Store(true)
	return r.done("raw-write", s.whenReady(&s.wr, f))
}

// whenReady calls f, and again each time the direction becomes ready, until f returns
// true.
func (s *sock) whenReady(h *direction, f func(fd uintptr) bool) error {
	if err := s.begin(h); err != nil {
		return err
	}
	defer s.end(h)
	if h.mode.Load() == young {
		if done, err := s.retryYoung(h, f); done {
			return err
		}
	}
	return s.retry(h, f)
}

// retry is whenReady for a caller that holds the turn. However it ends, it marks the
// direction ready: f may have left data for which no further event comes.
func (s *sock) retry(h *direction, f func(fd uintptr) bool) error {
	defer h.ready.Store(true)
	for {
		if err := s.check(h); err != nil {
			return err
		}
		h.ready.Store(false)
		done, alone := s.retryAlone(h, f)
		if !alone {
			done = f(uintptr(s.fd.Int()))
		}
		switch {
		case done:
			return nil
		case alone:
			continue
		}
		if err := s.waitFor(h); err != nil {
			return err
		}
	}
}

// retryAlone is retry for a socket that is alone. alone reports whether it is; otherwise f was not
// called. The netpoller calls f, so that f is not called again before something changes:
// f may leave data, with which the socket stays readable.
func (s *sock) retryAlone(h *direction, f func(fd uintptr) bool) (done, alone bool) {
	s.mu.Lock()
	if s.alone == nil || s.closing || h.expired.Load() {
		s.mu.Unlock()
		return false, false
	}
	return s.waitAlone(h, nil, f), true
}

// waitFor waits until the direction may be ready.
func (s *sock) waitFor(h *direction) error {
	if h == &s.wr {
		return s.waitWritable()
	}
	_, err := s.wait(h, nil)
	return err
}
