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

// sendRange sends a part of a file, and moves its begin on. It did nothing if it says that it did not handle it.
func (c *conn) sendRange(r *fileRange) (sent int64, handled bool, err error) {
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
	t := transfer{conn: c, fileRange: r, long: r.n >= longTransfer}
	var ended error
	err = in.Control(func(file uintptr) {
		ended = out.Write(func(socket uintptr) bool { return t.send(int(socket), int(file)) })
	})
	if err == nil {
		err = ended // a deadline, or the end of the connection
	}
	switch {
	case err != nil || t.err == nil:
	case t.sent == 0 && noSendfile(t.err):
		return 0, false, nil
	default:
		err = &net.OpError{Op: "write", Net: "tcp", Addr: c.RemoteAddr(), Err: os.NewSyscallError("sendfile", t.err)}
	}
	return t.sent, true, err
}

// noSendfile reports whether it is the file or the system that has no sendfile.
func noSendfile(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EOVERFLOW
}

// transfer is what one call of sendRange does.
type transfer struct {
	conn *conn
	*fileRange
	long bool
	sent int64
	err  error
}

// sendMax is the most that one call of sendfile is asked for: while the client and the disk keep up, nothing
// else ends it.
const sendMax = 4 << 20

// send sends until the socket takes no more, and reports whether that was all. A client that has taken something
// has time again.
func (t *transfer) send(socket, file int) (done bool) {
	begin := t.sent
	for t.n > 0 {
		if t.conn.closed.Load() {
			t.err = net.ErrClosed
			return true
		}
		n, err := t.piece(socket, file)
		if n > 0 {
			t.sent += int64(n)
			t.n -= int64(n)
		}
		switch {
		case err == unix.EAGAIN:
			if t.sent > begin {
				t.conn.patience()
			}
			return false
		case err == unix.EINTR:
		case err != nil:
			t.err = err
			return true
		case n == 0:
			t.err = io.ErrUnexpectedEOF // the file has become shorter
			return true
		}
	}
	return true
}

// piece makes one call.
func (t *transfer) piece(socket, file int) (int, error) {
	if t.long {
		if n, brief, err := sendBrief(socket, file, &t.off, t.n); brief {
			return n, err
		}
	}
	return unix.Sendfile(socket, file, &t.off, int(min(t.n, sendMax)))
}
