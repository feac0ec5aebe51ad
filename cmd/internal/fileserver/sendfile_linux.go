// SPDX-License-Identifier: MIT

package fileserver

import (
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// keepsOpen says that an open file can be shared by requests: sendfile takes a position.
const keepsOpen = true

// sendPiece sends up to n bytes of a file. It did nothing if it says that it did not handle them.
func (c *conn) sendPiece(r *fileRange, n int64) (sent int64, handled bool, err error) {
	socket, ok := c.Conn.(syscall.Conn)
	if !ok {
		return 0, false, nil
	}
	out, err := socket.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	in, err := r.file.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	p := piece{off: r.off, n: n}
	err = in.Control(func(file uintptr) {
		err = out.Write(func(socket uintptr) bool { return p.send(int(socket), int(file)) })
	})
	if err == nil && p.err != nil {
		if p.sent == 0 && (p.err == unix.EINVAL || p.err == unix.ENOSYS || p.err == unix.EOPNOTSUPP || p.err == unix.EOVERFLOW) {
			return 0, false, nil
		}
		err = &net.OpError{Op: "write", Net: "tcp", Addr: c.RemoteAddr(), Err: os.NewSyscallError("sendfile", p.err)}
	}
	return p.sent, true, err
}

// piece is what one call of sendPiece has still to send.
type piece struct {
	off  int64
	n    int64
	sent int64
	err  error
}

// send sends until the socket takes no more, and tells whether that was all.
func (p *piece) send(socket, file int) bool {
	for p.n > 0 {
		n, err := unix.Sendfile(socket, file, &p.off, int(p.n))
		if n > 0 {
			p.sent += int64(n)
			p.n -= int64(n)
		}
		switch {
		case err == unix.EAGAIN:
			return false
		case err == unix.EINTR:
		case err != nil:
			p.err = err
			return true
		case n == 0:
			p.err = io.ErrUnexpectedEOF // the file has become shorter
			return true
		}
	}
	return true
}
