// SPDX-License-Identifier: MIT

package fileserver

import (
	"io"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/ufile"
	"github.com/ringside-io/ringside/unet/ktls"
	"golang.org/x/sys/unix"
)

// keepsOpen reports whether requests can share an open file: sendfile takes a position.
const keepsOpen = true

// stateOf returns the state of an open file; false for one that was removed or replaced.
func stateOf(f *ufile.File) (fileState, bool) {
	var st unix.Stat_t
	if unix.Fstat(int(f.Fd()), &st) != nil || st.Nlink == 0 {
		return fileState{}, false
	}
	return fileState{st.Mtim.Nano(), st.Ctim.Nano(), st.Size, st.Ino, uint64(st.Dev), uint32(st.Nlink)}, true
}

// sendRange sends a part of a file and advances its beginning. If handled is false it did nothing.
func (c *conn) sendRange(r *fileRange) (sent int64, handled bool, err error) {
	write := rawWrite(c.Conn)
	if write == nil {
		return 0, false, nil
	}
	in, err := r.file.SyscallConn()
	if err != nil {
		return 0, false, nil
	}
	t := transfer{conn: c, fileRange: r}
	var ended error
	err = in.Control(func(file uintptr) {
		ended = write(func(socket uintptr) bool { return t.send(int(socket), int(file)) })
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

// rawWrite returns the function that calls another one with the socket's descriptor each time there
// is room, nil if there is no descriptor to which plaintext may be sent.
func rawWrite(c net.Conn) func(func(fd uintptr) bool) error {
	if secure, ok := c.(*ktls.Conn); ok {
		if name, _ := secure.Backend(); name == "kernel" {
			return secure.RawWrite
		}
		return nil
	}
	socket, ok := c.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return nil
	}
	return raw.Write
}

// noSendfile reports whether an error means that the file or the system has no sendfile.
func noSendfile(err error) bool {
	return err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP || err == unix.EOVERFLOW
}

// transfer is the state of one call of sendRange.
type transfer struct {
	conn *conn
	*fileRange
	sent int64
	err  error
}

// sendMax bounds the bytes of one call of sendfile while small requests arrive: they may have to
// wait for its end. Otherwise a call ends when the socket is full.
const sendMax = 256 << 10

// sending limits the calls of sendfile that run at the same time while small requests
// arrive, too. The other processors serve these requests: otherwise they would wait for
// the end of a call, or 10 ms until the runtime schedules them.
var sending = make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2))

// smallAt is the time of the last small response, in nanoseconds of the wall clock, and
// smallLately how long it counts.
var smallAt atomic.Int64

const smallLately = 100 * time.Millisecond

func noteSmall() { smallAt.Store(time.Now().UnixNano()) }

// send sends until the socket has no room, and reports whether all was sent. When a client
// has accepted bytes, its time starts again.
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
	limit := min(t.n, 1<<30) // the kernel takes 2 GiB at most
	if time.Now().UnixNano()-smallAt.Load() < int64(smallLately) {
		sending <- struct{}{}
		defer func() { <-sending }()
		limit = min(limit, sendMax)
	}
	return unix.Sendfile(socket, file, &t.off, int(limit))
}
