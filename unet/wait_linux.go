// SPDX-License-Identifier: MIT

package unet

import (
	"net"
	"os"
	"syscall"
)

// begin starts a call in one direction. If it returns nil, end must follow.
func (s *sock) begin(h *direction) error {
	if !s.lock.Acquire() {
		return net.ErrClosed
	}
	h.turn.Lock()
	return nil
}

func (s *sock) end(h *direction) {
	h.turn.Unlock()
	s.lock.Release()
}

// check returns the error of a call that must end because the socket is closing or
// the deadline has passed.
func (s *sock) check(h *direction) error {
	if s.lock.Closed() {
		return net.ErrClosed
	}
	if h.expired.Load() {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait blocks until the direction is ready, the call must end (see check), or the
// loop has received into buf; received reports the last. It may also return
// without any of these. The caller holds the turn.
func (s *sock) wait(h *direction, buf []byte) (received bool, err error) {
	if h.mode.Load() == mayLeave {
		s.leaveLoop()
	}
	s.mu.Lock()
	switch {
	case s.closing:
		s.mu.Unlock()
		return false, net.ErrClosed
	case h.expired.Load():
		s.mu.Unlock()
		return false, os.ErrDeadlineExceeded
	case h.ready.Load():
		s.mu.Unlock()
		return false, nil
	}
	if h == &s.rd {
		s.in = delivery{buf: buf}
	}
	if s.alone != nil {
		return s.waitAlone(h, buf, nil), nil
	}
	h.state = parked
	if h.wake == nil {
		h.wake = newWake()
	}
	s.mu.Unlock()
	if s.loop.starved.Load() {
		s.loop.help()
	}
	<-h.wake
	if h != &s.rd {
		return false, nil
	}
	s.in.buf = nil
	if s.in.counted {
		s.loop.readerRuns()
	}
	return s.in.done, nil
}

// waitWritable is wait for writing. A socket is watched for writing only after its first
// wait: many sockets never fill up, and Unix sockets would report each message that the
// peer reads.
func (s *sock) waitWritable() error {
	s.mu.Lock()
	if s.alone != nil {
		s.watchOut = true // after the return to the loop
	}
	if !s.watchOut && !s.closing {
		s.watchOut = true
		if errno := s.loop.poll.Modify(s.fd.Int(), watched|syscall.EPOLLOUT, s.key); errno != 0 {
			s.watchOut = false
			s.mu.Unlock()
			return os.NewSyscallError("epoll_ctl", errno)
		}
	}
	s.mu.Unlock()
	_, err := s.wait(&s.wr, nil)
	return err
}
