// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"syscall"
)

// rawConn lends the descriptor.
type rawConn struct {
	s    *sock
	wrap func(op string, err error) error
}

// SyscallConn lends the descriptor to functions, as package net's does: Read
// and Write run theirs until it reports that it is done, each time that the
// socket is ready, and keep deadlines. The descriptor does not block.
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
		r.s.wary.Store(true)
		f(uintptr(fd))
		return nil
	}))
}

func (r *rawConn) Read(f func(fd uintptr) bool) error {
	s := r.s
	s.wary.Store(true) // nobody knows what f leaves
	return r.done("raw-read", s.whenReady(&s.rd, func(fd int) bool { return f(uintptr(fd)) }))
}

func (r *rawConn) Write(f func(fd uintptr) bool) error {
	s := r.s
	s.wary.Store(true)
	return r.done("raw-write", s.whenReady(&s.wr, func(fd int) bool { return f(uintptr(fd)) }))
}

// whenReady runs f, and again whenever the direction has become ready, until it
// says that it is done.
func (s *sock) whenReady(h *half, f func(fd int) bool) error {
	if err := s.begin(h); err != nil {
		return err
	}
	defer s.end(h)
	return s.retry(h, f)
}

// retry is whenReady for a caller that has the turn. However it ends, the
// direction counts as ready: f may have left data that no event will announce
// again.
func (s *sock) retry(h *half, f func(fd int) bool) error {
	defer h.ready.Store(true)
	for {
		if err := s.check(h); err != nil {
			return err
		}
		h.ready.Store(false)
		if f(s.fd.Int()) {
			return nil
		}
		if err := s.waitFor(h); err != nil {
			return err
		}
	}
}

// waitFor waits until the direction may be ready.
func (s *sock) waitFor(h *half) error {
	if h == &s.wr {
		return s.waitWritable()
	}
	_, err := s.wait(h, nil)
	return err
}
