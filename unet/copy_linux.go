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

// streamSource returns the descriptor of a stream socket to splice from.
func streamSource(r io.Reader) (syscall.RawConn, bool) {
	var from syscall.Conn
	switch r := r.(type) {
	case onlyReader:
		from = r.c
	case *TCPConn:
		from = r
	case *UnixConn:
		if r.network != "unix" {
			return nil, false
		}
		from = r
	case *net.TCPConn:
		from = r
	case *net.UnixConn:
		if r.LocalAddr().Network() != "unix" {
			return nil, false
		}
		from = r
	default:
		return nil, false
	}
	raw, err := from.SyscallConn()
	return raw, err == nil
}

// spliceFrom moves up to limit bytes from a stream socket without copying them
// to the process. It did nothing when it says that it did not handle r.
func (c *conn) spliceFrom(r io.Reader, limit int64) (moved int64, handled bool, err error) {
	src, ok := streamSource(r)
	if !ok || !c.lock.Acquire() {
		return 0, false, nil
	}
	defer c.lock.Release()
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
func fillPipe(src syscall.RawConn, p *pipe, most int) (n int, errno syscall.Errno, err error) {
	err = src.Read(func(fd uintptr) bool {
		for {
			n, errno = sys.SockSplice(int(fd), p.w.Int(), most, sys.SpliceNonblock)
			if errno != syscall.EINTR { // after which nobody would tell of what is there
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

// sendFile sends up to limit bytes from the position of a file. When it says that it
// did not handle r, the rest has to be copied.
func (c *conn) sendFile(r io.Reader, limit int64) (sent int64, handled bool, err error) {
	file, ok := r.(syscall.Conn)
	if !ok {
		return 0, false, nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	fileErr := raw.Read(func(in uintptr) bool {
		sent, handled, err = c.sendFileFD(int(in), limit)
		return true
	})
	if fileErr != nil {
		return sent, handled, fileErr
	}
	return sent, handled, err
}

func (c *conn) sendFileFD(in int, limit int64) (sent int64, handled bool, err error) {
	var errno syscall.Errno
	err = c.whenReady(&c.wr, func(fd int) bool {
		for sent < limit {
			var n int
			n, errno = sys.SockSendFile(fd, in, int(min(limit-sent, sendChunk)))
			sent += int64(n)
			switch {
			case errno == syscall.EAGAIN:
				return false
			case errno == syscall.EINTR:
				continue
			case errno != 0 || n == 0:
				return true
			}
		}
		return true
	})
	switch {
	case err != nil:
		return sent, true, err
	case errno == 0 || errno == syscall.EAGAIN || errno == syscall.EINTR:
		return sent, true, nil
	case noSendFile(errno):
		return sent, false, nil
	}
	return sent, true, callError("sendfile", errno)
}

// noSendFile says whether the kernel cannot send from what it was given.
func noSendFile(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EIO, syscall.EOVERFLOW:
		return true
	}
	return false
}
