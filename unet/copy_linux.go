// SPDX-License-Identifier: MIT

package unet

import (
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

// sendChunk limits one call of sendfile, which may wait for the disk.
const sendChunk = 4 << 20

// ReadFrom sends the data of r until its end, like net.TCPConn.ReadFrom: from files with
// sendfile(2), from stream sockets with splice(2), otherwise through a buffer.
func (c *TCPConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.readFrom(r)
	if err != nil && err != io.EOF {
		err = c.opError("readfrom", err)
	}
	return n, err
}

// readFrom tries splice, then sendfile, then copies through memory.
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

// WriteTo writes the arriving data to w until the end of the stream, like
// net.TCPConn.WriteTo: to stream sockets with splice(2), otherwise through a buffer.
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

// onlyWriter and onlyReader hide ReadFrom and WriteTo, which io.Copy would call.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ c *TCPConn }
)

func (r onlyReader) Read(p []byte) (int, error) { return r.c.Read(p) }

// source calls f with a descriptor, and again each time the descriptor becomes
// readable, until f returns true.
type source func(f func(fd uintptr) bool) error

// streamSource returns the source of a stream socket, nil if r is not one.
func streamSource(r io.Reader) source {
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

// ownSource returns r as a connection of this package, nil if it is one of package net.
func ownSource(r io.Reader) *conn {
	switch r := r.(type) {
	case onlyReader:
		return &r.c.conn
	case *TCPConn:
		return &r.conn
	case *UnixConn:
		return &r.conn
	}
	return nil
}

// readable is the source of a socket of this package.
func (c *conn) readable(f func(fd uintptr) bool) error {
	c.moreLikely.Store(true) // f may leave data
	return c.whenReady(&c.rd, f)
}

// readableNet returns the source of a socket of package net.
func readableNet(c syscall.Conn) source {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil
	}
	return func(f func(fd uintptr) bool) error {
		return withoutOp(raw.Read(f))
	}
}

// sink is where the data of a stream socket goes: a connection, or in an unchanged program
// also a file (internal/overlay).
type sink interface {
	write(p []byte) (int, error)
	drainPipe(p *pipe, n int) (done int, err error) // moves the n bytes that a pipe holds
}

// spliceFrom moves up to limit bytes from a stream socket. If handled is false, it did
// nothing.
func (c *conn) spliceFrom(r io.Reader, limit int64) (moved int64, handled bool, err error) {
	src := streamSource(r)
	if src == nil {
		return 0, false, nil
	}
	return c.loop.system.splice(c, src, ownSource(r), limit)
}

// splice moves up to limit bytes from a stream socket, which own is if it is one of this
// package. If handled is false, it did nothing. Small pieces go through a buffer, which
// costs less than a pipe: the driver receives them for the reader. After a piece that
// filled the buffer the bytes stay in the kernel, until a piece is small again. While it
// waits for the source it holds no lock of the destination, and while it waits for that
// none of the source, so that closing one never waits for the peer of the other.
func (s *System) splice(to sink, src source, own *conn, limit int64) (moved int64, handled bool, err error) {
	for moved < limit {
		if own != nil {
			n, more, err := copySmall(to, own, limit-moved)
			if moved += n; err != nil || !more {
				return moved, true, err
			}
		}
		n, ended, ok, err := s.spliceLarge(to, src, limit-moved, own != nil)
		moved += n
		if !ok && own == nil && moved == 0 {
			return 0, false, nil
		}
		if err != nil || ended {
			return moved, true, err
		}
		if !ok { // no pipe, or the sockets do not support splice
			return copyRest(to, own, limit, moved)
		}
	}
	return moved, true, nil
}

// smallPiece is the size of the buffer for small pieces; each copy between two sockets
// holds one while it waits.
const smallPiece = 4 << 10

var smallPieces = sync.Pool{New: func() any { return new([smallPiece]byte) }}

// copySmall moves pieces that are smaller than the buffer; more reports that one filled
// it, and is false at the end of the stream and of the limit.
func copySmall(to sink, from *conn, limit int64) (moved int64, more bool, err error) {
	buf := smallPieces.Get().(*[smallPiece]byte)
	defer smallPieces.Put(buf)
	for moved < limit {
		n, err := from.read(buf[:min(limit-moved, smallPiece)])
		if n == 0 || err != nil {
			return moved, false, asSplice(err)
		}
		m, err := to.write(buf[:n])
		if moved += int64(m); err != nil {
			return moved, false, asSplice(err)
		}
		if n == smallPiece {
			return moved, moved < limit, nil
		}
	}
	return moved, false, nil
}

// copyRest is copySmall to the end.
func copyRest(to sink, from *conn, limit, moved int64) (int64, bool, error) {
	for more := true; more; {
		var n int64
		var err error
		n, more, err = copySmall(to, from, limit-moved)
		if moved += n; err != nil {
			return moved, true, err
		}
	}
	return moved, true, nil
}

// asSplice names splice in the error of another system call, as package net does for a
// copy between two sockets.
func asSplice(err error) error {
	if call, ok := err.(*os.SyscallError); ok {
		return os.NewSyscallError("splice", call.Err)
	}
	return err
}

// spliceLarge moves bytes without copying them to the process, with whileLarge as long
// as the pieces are not small. ok is false if that is not possible here.
func (s *System) spliceLarge(to sink, src source, limit int64, whileLarge bool) (moved int64, ended, ok bool, err error) {
	p, err := s.getPipe()
	if err != nil {
		return 0, false, false, nil
	}
	empty := true
	defer func() {
		if empty {
			s.putPipe(p)
		} else {
			p.close()
		}
	}()
	for moved < limit {
		n, errno, err := fillPipe(src, p, int(min(limit-moved, sys.SpliceChunk)))
		switch {
		case err != nil:
			return moved, false, true, err
		case errno == syscall.EINVAL && moved == 0:
			return 0, false, false, nil
		case errno != 0:
			return moved, false, true, callError("splice", errno)
		case n == 0:
			return moved, true, true, nil
		}
		m, err := to.drainPipe(p, n)
		moved += int64(m)
		if err != nil {
			empty = m == n
			return moved, false, true, err
		}
		if whileLarge && n < smallPiece {
			return moved, false, true, nil
		}
	}
	return moved, false, true, nil
}

// fillPipe waits for data of src and moves some of it to an empty pipe. It returns 0
// at the end of the stream.
func fillPipe(src source, p *pipe, most int) (n int, errno syscall.Errno, err error) {
	err = src(func(fd uintptr) bool {
		for {
			n, errno = sys.SockSplice(int(fd), p.w.Int(), most, sys.SpliceNonblock)
			if errno != syscall.EINTR { // no event follows for data that has already arrived
				return errno != syscall.EAGAIN
			}
		}
	})
	return n, errno, err
}

// drainPipe sends the n bytes that a pipe holds.
func (c *conn) drainPipe(p *pipe, n int) (done int, err error) {
	var errno syscall.Errno
	err = c.whenReady(&c.wr, func(fd uintptr) bool {
		for done < n {
			var m int
			m, errno = sys.SockSplice(p.r.Int(), int(fd), n-done, sys.SpliceNonblock)
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

// sendFile sends up to limit bytes from the position of a file. If handled is false,
// the caller copies the rest. It holds the file only during each system call and not
// while it waits for the peer of c, so that closing the file does not wait for that
// peer.
func (c *conn) sendFile(r io.Reader, limit int64) (sent int64, handled bool, err error) {
	file, ok := r.(syscall.Conn)
	if !ok {
		return 0, false, nil
	}
	raw, err := file.SyscallConn()
	if err != nil || c.check(&c.wr) != nil { // the caller's Write returns the error
		return 0, false, nil
	}
	sent, unfit, err := c.sendFrom(raw.Control, limit)
	return sent, unfit == 0, err
}

// sendFrom is sendFile from the descriptor that control passes to its argument. unfit is why
// sendfile cannot send the rest, in which case err is nil.
func (c *conn) sendFrom(control func(func(fd uintptr)) error, limit int64) (sent int64, unfit syscall.Errno, err error) {
	h := &c.wr
	if err := c.settle(); err != nil {
		return 0, syscall.ENOSYS, nil // the caller's Write works, or returns the error
	}
	if err := c.begin(h); err != nil {
		return 0, 0, err
	}
	defer c.end(h)
	for sent < limit {
		if err := c.check(h); err != nil {
			return sent, 0, err
		}
		h.ready.Store(false)
		var n int
		var errno syscall.Errno
		err := control(func(in uintptr) {
			n, errno = sys.SockSendFile(c.fd.Int(), int(in), int(min(limit-sent, sendChunk)))
		})
		if err != nil {
			return sent, syscall.EBADF, nil // the caller reads the file and gets the error
		}
		sent += int64(n)
		switch {
		case errno == syscall.EAGAIN:
			if err := c.waitWritable(); err != nil {
				return sent, 0, err
			}
		case errno == syscall.EINTR:
		case noSendFile(errno):
			return sent, errno, nil
		case errno != 0 || n == 0:
			return sent, 0, callError("sendfile", errno)
		}
	}
	return sent, 0, nil
}

// noSendFile reports whether an error means that sendfile does not support the file.
func noSendFile(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EIO, syscall.EOVERFLOW:
		return true
	}
	return false
}

// sparePipes limits the pipes that a system keeps for later copies.
const sparePipes = 16
