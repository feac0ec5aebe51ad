// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"math"
	"net"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// sendChunk bounds one call of sendfile, which reads the file meanwhile.
const sendChunk = 4 << 20

// ReadFrom sends what r yields until its end, as net.TCPConn.ReadFrom: from
// files with sendfile(2), from stream sockets with splice(2), otherwise through
// a buffer.
func (c *TCPConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.readFrom(r)
	if err != nil && err != io.EOF {
		err = c.opError("readfrom", err)
	}
	return n, err
}

func (c *TCPConn) readFrom(r io.Reader) (int64, error) {
	src, limit := r, int64(math.MaxInt64)
	lr, limited := r.(*io.LimitedReader)
	if limited {
		if src, limit = lr.R, lr.N; limit <= 0 {
			return 0, nil
		}
	}
	n, handled, err := c.conn.spliceFrom(src, limit)
	if !handled {
		n, handled, err = c.conn.sendFile(src, limit)
	}
	if limited {
		lr.N -= n
	}
	if !handled {
		var rest int64
		rest, err = io.Copy(onlyWriter{c}, r)
		n += rest
	}
	return n, err
}

// WriteTo sends what arrives to w until the end, as net.TCPConn.WriteTo: to
// stream sockets with splice(2), otherwise through a buffer.
func (c *TCPConn) WriteTo(w io.Writer) (int64, error) {
	var n int64
	var handled bool
	var err error
	if u, ok := w.(*UnixConn); ok && u.network == "unix" {
		n, handled, err = u.conn.spliceFrom(c, math.MaxInt64)
	}
	if !handled {
		n, err = io.Copy(w, onlyReader{c})
	}
	if err != nil && err != io.EOF {
		err = c.opError("writeto", err)
	}
	return n, err
}

// onlyWriter and onlyReader hide the methods by which io.Copy would come back.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ c *TCPConn }
)

func (r onlyReader) Read(p []byte) (int, error) { return r.c.Read(p) }

// waiter runs a function with the descriptor of a source, again and again as it
// becomes readable, until the function reports that it is done.
type waiter func(f func(fd int) bool) error

// streamSource returns how to read from the descriptor of a stream socket, nil
// when r is something else.
func streamSource(r io.Reader) waiter {
	switch r := r.(type) {
	case onlyReader:
		return r.c.readable
	case *TCPConn:
		return r.readable
	case *UnixConn:
		if r.network == "unix" {
			return r.readable
		}
	case *net.TCPConn:
		return readableNet(r)
	case *net.UnixConn:
		if r.LocalAddr().Network() == "unix" {
			return readableNet(r)
		}
	}
	return nil
}

// readable is a waiter for a socket of this package.
func (c *conn) readable(f func(fd int) bool) error {
	c.wary.Store(true) // what f leaves is not known
	return c.whenReady(&c.rd, f)
}

// readableNet returns a waiter for a socket of package net's.
func readableNet(c syscall.Conn) waiter {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return func(f func(fd int) bool) error {
		err := raw.Read(func(fd uintptr) bool { return f(int(fd)) })
		if op, ok := err.(*net.OpError); ok {
			return op.Err // the caller names the operation
		}
		return err
	}
}

// spliceFrom moves up to limit bytes from a stream socket without copying them
// to the process. It did nothing when handled is false. While it waits for the
// source it holds nothing of c, and the other way round: Close of either does
// not wait for the peer of the other.
func (c *conn) spliceFrom(r io.Reader, limit int64) (moved int64, handled bool, err error) {
	src := streamSource(r)
	if src == nil || c.lock.Closed() {
		return 0, false, nil
	}
	p, err := c.loop.system.getPipe()
	if err != nil {
		return 0, false, nil
	}
	empty := true
	defer func() {
		if empty {
			c.loop.system.putPipe(p)
		} else {
			p.close()
		}
	}()
	for moved < limit {
		n, errno, err := fillPipe(src, p, int(min(limit-moved, sys.SpliceChunk)))
		switch {
		case err != nil:
			return moved, true, err
		case errno == syscall.EINVAL && moved == 0:
			return 0, false, nil
		case errno != 0:
			return moved, true, callError("splice", errno)
		case n == 0:
			return moved, true, nil
		}
		m, err := c.drainPipe(p, n)
		moved += int64(m)
		if err != nil {
			empty = m == n
			return moved, true, err
		}
	}
	return moved, true, nil
}

// fillPipe waits for data of src and moves some of it to an empty pipe: 0 at
// the end.
func fillPipe(src waiter, p *pipe, most int) (n int, errno syscall.Errno, err error) {
	err = src(func(fd int) bool {
		for {
			n, errno = sys.SockSplice(fd, p.w.Int(), most, sys.SpliceNonblock)
			if errno != syscall.EINTR { // no event would follow for what is there already
				return errno != syscall.EAGAIN
			}
		}
	})
	return n, errno, err
}

// drainPipe sends the n bytes that a pipe holds.
func (c *conn) drainPipe(p *pipe, n int) (done int, err error) {
	var errno syscall.Errno
	err = c.whenReady(&c.wr, func(fd int) bool {
		for done < n {
			var m int
			m, errno = sys.SockSplice(p.r.Int(), fd, n-done, sys.SpliceNonblock)
			done += m
			if errno == syscall.EAGAIN {
				return false
			}
			if errno != 0 && errno != syscall.EINTR {
				return true
			}
		}
		return true
	})
	if err == nil && done < n {
		err = callError("splice", errno)
	}
	return done, err
}

// sendFile sends up to limit bytes from the position of a file. When handled is
// false the rest has to be copied. It holds the file only for the time of each
// system call, and never while it waits for the peer of c: closing the file, or
// a copy in the other direction, does not wait for that peer.
func (c *conn) sendFile(r io.Reader, limit int64) (sent int64, handled bool, err error) {
	file, ok := r.(syscall.Conn)
	if !ok {
		return 0, false, nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	h := &c.wr
	if err := c.begin(h); err != nil {
		return 0, true, err
	}
	defer c.end(h)
	for sent < limit {
		if err := c.check(h); err != nil {
			return sent, true, err
		}
		h.ready.Store(false)
		var n int
		var errno syscall.Errno
		err := raw.Control(func(in uintptr) {
			n, errno = sys.SockSendFile(c.fd.Int(), int(in), int(min(limit-sent, sendChunk)))
		})
		if err != nil {
			return sent, false, nil // reading the file tells why
		}
		sent += int64(n)
		switch {
		case errno == syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return sent, true, err
			}
		case errno == syscall.EINTR:
		case noSendFile(errno):
			return sent, false, nil
		case errno != 0 || n == 0:
			return sent, true, callError("sendfile", errno)
		}
	}
	return sent, true, nil
}

// noSendFile reports whether the kernel cannot send from what it was given.
func noSendFile(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EIO, syscall.EOVERFLOW:
		return true
	}
	return false
}

// pipe carries data from one socket to another inside of the kernel.
type pipe struct{ r, w *sys.FD }

// sparePipes is how many pipes a system keeps for the next copy.
const sparePipes = 16

func (p *pipe) close() {
	_ = p.r.Close() // nothing is lost: the data has been counted
	_ = p.w.Close()
}

// getPipe returns an empty pipe.
func (s *System) getPipe() (*pipe, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.pipes); n > 0 {
		p := s.pipes[n-1]
		s.pipes = s.pipes[:n-1]
		return p, nil
	}
	r, w, err := sys.SplicePipe()
	if err != nil {
		return nil, err
	}
	return &pipe{r, w}, nil
}

// putPipe takes an empty pipe back.
func (s *System) putPipe(p *pipe) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pipes) < sparePipes && s.users > 0 {
		s.pipes = append(s.pipes, p)
		return
	}
	p.close()
}

// closePipes frees the pipes of a system without sockets. The caller holds mu.
func (s *System) closePipes() {
	for _, p := range s.pipes {
		p.close()
	}
	s.pipes = nil
}
