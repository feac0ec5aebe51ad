// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// conn is the common part of the connections of all families.
type conn struct {
	sock
	network       string
	local, remote net.Addr
}

// wire makes the race detector order each write before later reads, as package syscall
// does for package net: programs rely on that order when both ends are in one process.
var wire byte

// maxTransfer limits the bytes of one system call, as in package net.
const maxTransfer = 1 << 30

// opError wraps an error as package net does.
func (c *conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.network, Source: c.local, Addr: c.remote, Err: err}
}

// setError wraps an error of a method that sets an option or a deadline.
func (c *conn) setError(err error) error {
	if err == nil {
		return nil
	}
	return &net.OpError{Op: "set", Net: c.network, Addr: c.local, Err: err}
}

// Read reads the bytes that have arrived, up to len(p), and waits if there are none. At
// the end of the stream it returns io.EOF itself; every other error is a *net.OpError. p
// belongs to the connection until Read returns.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.read(p)
	switch {
	case err != nil:
		return 0, c.opError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// read is Read with unwrapped errors; it returns 0 and nil at the end.
func (c *conn) read(p []byte) (int, error) {
	h := &c.rd
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	if len(p) == 0 {
		return 0, c.closedOnly()
	}
	if len(p) > maxTransfer {
		p = p[:maxTransfer]
	}
	switch h.mode.Load() {
	case mayLeave: // here too: a call that finds data does not wait
		c.leaveLoop()
	case young:
		if n, done, err := c.readYoung(p); done {
			return n, err
		}
	}
	for {
		if err := c.check(h); err != nil {
			if err == os.ErrDeadlineExceeded {
				c.noteExpired()
			}
			return 0, err
		}
		if h.ready.Load() && h.ready.Swap(false) {
			n, errno := sys.SockRecv(c.fd.Int(), p, sys.MsgDontWait)
			switch errno {
			case syscall.EAGAIN:
			case syscall.EINTR:
				h.ready.Store(true)
				continue
			default:
				sys.RaceWrite(p[:n])
				sys.RaceAcquire(&wire)
				c.afterReceive(n, len(p), errno)
				c.noteSize(n, len(p))
				return n, callError("read", errno)
			}
		}
		received, err := c.wait(h, p)
		if err != nil {
			return 0, err
		}
		if received {
			sys.RaceAcquire(&wire)
			n, errno := split(c.in.res)
			c.noteSize(n, len(p))
			return n, callError("read", errno)
		}
	}
}

// closedOnly is check without the deadline.
func (s *sock) closedOnly() error {
	if s.lock.Closed() {
		return net.ErrClosed
	}
	return nil
}

// Write writes all of p, and waits while the send buffer is full. The data of concurrent
// writes is not interleaved. If it writes fewer bytes than p has, it returns a
// *net.OpError with the reason. p belongs to the connection until Write returns.
func (c *conn) Write(p []byte) (int, error) {
	n, err := c.write(p)
	if err != nil {
		err = c.opError("write", err)
	}
	return n, err
}

func (c *conn) write(p []byte) (int, error) {
	h := &c.wr
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	if h.mode.Load() == young {
		if n, done, err := c.writeYoung(p); done {
			return n, err
		} else if n > 0 {
			rest, err := c.send(p[n:])
			return n + rest, err
		}
	}
	return c.send(p)
}

// send writes all of p. The caller has the turn.
func (c *conn) send(p []byte) (done int, err error) {
	h := &c.wr
	if err := c.check(h); err != nil {
		return 0, err
	}
	for {
		if h.ready.Load() {
			h.ready.Store(false)
		}
		sys.RaceRead(p[done:])
		sys.RaceRelease(&wire)
		n, errno := sys.SockSend(c.fd.Int(), p[done:min(len(p), done+maxTransfer)], sys.MsgDontWait)
		done += n
		switch {
		case errno == 0 && done == len(p):
			return done, nil
		case errno == 0 && n == 0:
			return done, io.ErrUnexpectedEOF
		case errno == syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return done, err
			}
			if err := c.check(h); err != nil {
				return done, err
			}
		case errno != 0 && errno != syscall.EINTR:
			return done, callError("write", errno)
		}
	}
}

// Close closes the connection. Waiting calls return an error that wraps net.ErrClosed,
// and Close returns after them. The kernel still sends data that was written (see
// [TCPConn.SetLinger]).
func (c *conn) Close() error {
	if err := c.close(); err != nil {
		return c.opError("close", err)
	}
	return nil
}

// LocalAddr returns the local address. Do not change it.
func (c *conn) LocalAddr() net.Addr { return c.local }

// RemoteAddr returns the peer's address, nil if there is none. Do not change it.
func (c *conn) RemoteAddr() net.Addr { return c.remote }

// SetDeadline sets the deadlines of reading and writing. After t, waiting calls return an
// error that wraps os.ErrDeadlineExceeded. The zero time means no deadline. A deadline
// may be changed at any time, and the change affects calls in progress.
func (c *conn) SetDeadline(t time.Time) error { return c.setError(c.setDeadline(t, true, true)) }

// SetReadDeadline is SetDeadline for reading.
func (c *conn) SetReadDeadline(t time.Time) error {
	return c.setError(c.setDeadline(t, true, false))
}

// SetWriteDeadline is SetDeadline for writing.
func (c *conn) SetWriteDeadline(t time.Time) error {
	return c.setError(c.setDeadline(t, false, true))
}

// use calls f with the descriptor, which stays open during the call.
func (s *sock) use(f func(fd int) error) error {
	if !s.lock.Acquire() {
		return net.ErrClosed
	}
	defer s.lock.Release()
	if s.rd.mode.Load() == young {
		if done, err := s.useYoung(f); done {
			return err
		}
	}
	return f(s.fd.Int())
}

// setInt sets an integer option.
func (c *conn) setInt(level, option, value int) error {
	return c.setError(c.use(func(fd int) error {
		return os.NewSyscallError("setsockopt", sys.SetSockInt(fd, level, option, value))
	}))
}

// SetReadBuffer sets the size of the kernel's receive buffer in bytes.
func (c *conn) SetReadBuffer(bytes int) error {
	return c.setInt(syscall.SOL_SOCKET, syscall.SO_RCVBUF, bytes)
}

// SetWriteBuffer sets the size of the kernel's send buffer in bytes.
func (c *conn) SetWriteBuffer(bytes int) error {
	return c.setInt(syscall.SOL_SOCKET, syscall.SO_SNDBUF, bytes)
}

// shutdown closes one direction.
func (c *conn) shutdown(how int) error {
	err := c.use(func(fd int) error { return os.NewSyscallError("shutdown", sys.SockShutdown(fd, how)) })
	if err != nil {
		return c.opError("close", err)
	}
	return nil
}

// File returns a file that uses a duplicate of the descriptor. The caller must close it.
// Closing the file does not close the connection, and closing the connection does not
// close the file. As in package net, the file's method Fd makes the socket blocking.
func (c *conn) File() (f *os.File, err error) {
	err = c.use(func(fd int) (err error) {
		c.moreLikely.Store(true) // the other may read
		f, err = dupFile(fd, connFile)
		return err
	})
	if err != nil {
		return nil, c.opError("file", err)
	}
	return f, nil
}

func addrString(a net.Addr) string {
	if a == nil {
		return ""
	}
	return a.String()
}

// dupFile returns a file with a duplicate of a descriptor. Package net creates the
// file: only it can create one whose method Fd makes the descriptor blocking.
func dupFile(fd int, fileOf func(*os.File) (*os.File, error)) (*os.File, error) {
	n, err := sys.Dup(fd)
	if err != nil {
		return nil, syscallError("dup", err)
	}
	own := os.NewFile(uintptr(n), "")
	defer own.Close()
	f, err := fileOf(own)
	return f, withoutOp(err)
}

func connFile(own *os.File) (*os.File, error) {
	restore := tcpOptions(own)
	c, err := net.FileConn(own)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	restore()
	return c.(interface{ File() (*os.File, error) }).File()
}

// tcpOptions returns a function that restores the options that [net.FileConn] sets on a
// TCP socket, which the duplicate shares with the connection.
func tcpOptions(own *os.File) (restore func()) {
	type option struct{ level, name, value int }
	var options []option
	raw, err := own.SyscallConn()
	if err != nil {
		return func() {}
	}
	control := func(f func(fd int)) { _ = raw.Control(func(fd uintptr) { f(int(fd)) }) }
	control(func(fd int) {
		for _, o := range []option{
			{syscall.IPPROTO_TCP, syscall.TCP_NODELAY, 0}, {syscall.SOL_SOCKET, syscall.SO_KEEPALIVE, 0},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPIDLE, 0}, {syscall.IPPROTO_TCP, syscall.TCP_KEEPINTVL, 0},
			{syscall.IPPROTO_TCP, syscall.TCP_KEEPCNT, 0},
		} {
			if v, err := syscall.GetsockoptInt(fd, o.level, o.name); err == nil { // not of a Unix socket
				options = append(options, option{o.level, o.name, v})
			}
		}
	})
	return func() {
		control(func(fd int) {
			for _, o := range options {
				_ = syscall.SetsockoptInt(fd, o.level, o.name, o.value)
			}
		})
	}
}

func listenerFile(own *os.File) (*os.File, error) {
	l, err := net.FileListener(own)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	return l.(interface{ File() (*os.File, error) }).File()
}

// maxParts limits the buffers of one system call (IOV_MAX).
const maxParts = 1024

// vector is the argument of a system call with several buffers.
type vector struct {
	msg uring.Msg
	iov []uring.Iovec
}

var vectors = sync.Pool{New: func() any { return new(vector) }}

// fill sets v to the first buffers of bufs.
func (v *vector) fill(bufs net.Buffers) {
	v.iov = v.iov[:0]
	room := maxTransfer
	for _, b := range bufs {
		if len(b) == 0 {
			continue
		}
		v.iov = append(v.iov, uring.NewIovec(b[:min(len(b), room)]))
		if room -= min(len(b), room); room == 0 || len(v.iov) == maxParts {
			break
		}
	}
	v.msg.Set(nil, v.iov, nil)
}

// Writev writes all buffers in as few system calls as possible. It removes the written
// bytes from bufs, as net.Buffers.WriteTo does on a connection of package net. The memory
// of the buffers belongs to the connection until Writev returns, and is not changed.
func (c *conn) Writev(bufs *net.Buffers) (int64, error) {
	n, err := c.writev(bufs)
	if err != nil {
		err = c.opError("writev", err)
	}
	return n, err
}

// writev sends the buffers in as few calls as the kernel takes, and removes from bufs what was sent.
func (c *conn) writev(bufs *net.Buffers) (done int64, err error) {
	h := &c.wr
	if err := c.begin(h); err != nil {
		return 0, err
	}
	defer c.end(h)
	if err := c.check(h); err != nil {
		return 0, err
	}
	if h.mode.Load() == young {
		var ended bool
		if done, ended, err = c.writevYoung(bufs); ended {
			return done, err
		}
	}
	v := vectors.Get().(*vector)
	defer func() {
		v.msg.Set(nil, nil, nil)
		clear(v.iov)
		vectors.Put(v)
	}()
	for {
		if v.fill(*bufs); len(v.iov) == 0 {
			consume(bufs, 0)
			return done, nil
		}
		h.ready.Store(false)
		sys.RaceRelease(&wire)
		n, errno := sys.SockSendMsg(c.fd.Int(), sys.Pointer(&v.msg), sys.MsgDontWait)
		done += int64(n)
		consume(bufs, n)
		switch {
		case errno == syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return done, err
			}
			if err := c.check(h); err != nil {
				return done, err
			}
		case errno == 0 && n == 0:
			return done, io.ErrUnexpectedEOF
		case errno != 0 && errno != syscall.EINTR:
			return done, callError("writev", errno)
		}
	}
}

// consume removes n bytes, and empty buffers, from the front of bufs.
func consume(bufs *net.Buffers, n int) {
	for len(*bufs) > 0 {
		b := (*bufs)[0]
		if n < len(b) {
			(*bufs)[0] = b[n:]
			return
		}
		n -= len(b)
		(*bufs)[0] = nil
		*bufs = (*bufs)[1:]
	}
}
