// SPDX-License-Identifier: MIT

package fileserver

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/ringside-io/ringside/ufile"
)

// slowConn is a connection with a slow client: wait is called instead of waiting for space.
type slowConn struct {
	net.Conn
	fd        int
	wait      func() error
	deadlines int
}

func (c *slowConn) SyscallConn() (syscall.RawConn, error) { return slowRaw{c: c}, nil }
func (c *slowConn) SetWriteDeadline(time.Time) error      { c.deadlines++; return nil }
func (c *slowConn) RemoteAddr() net.Addr                  { return nil }
func (c *slowConn) Close() error                          { return nil }

type slowRaw struct {
	syscall.RawConn
	c *slowConn
}

func (r slowRaw) Write(f func(fd uintptr) bool) error {
	for !f(uintptr(r.c.fd)) {
		if err := r.c.wait(); err != nil {
			return err
		}
	}
	return nil
}

// slowTransfer prepares sending a file to a client that reads when wait does.
func slowTransfer(t *testing.T, size int) (c *conn, slow *slowConn, peer int, r *fileRange) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, make([]byte, size), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := ufile.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _ = f.Close(), unix.Close(fds[0]), unix.Close(fds[1]) })
	slow = &slowConn{fd: fds[0]}
	return &conn{Conn: slow}, slow, fds[1], &fileRange{f, 0, int64(size)}
}

// TestSlowButSteadyClient reads a little whenever its minute is nearly over: the transfer
// continues. A client that reads nothing gets no more time.
func TestSlowButSteadyClient(t *testing.T) {
	const size = 4 << 20
	c, slow, peer, r := slowTransfer(t, size)
	var took, waits, given int
	buf := make([]byte, 64<<10)
	take := func() {
		for {
			n, err := unix.Read(peer, buf)
			if err != nil {
				return // the client reads no more
			}
			took += n
		}
	}
	slow.wait = func() error {
		if more := slow.deadlines - given; waits%2 == 0 && more != 1 || waits%2 == 1 && more != 0 {
			t.Errorf("wait %d: the deadline was moved %d times", waits, more)
		}
		c.until = time.Now() // nearly
		given = slow.deadlines
		if waits++; waits%2 == 1 {
			return nil // a spurious wakeup
		}
		take()
		return nil
	}
	n, err := c.sendFile(r)
	if n != size || err != nil || waits < 4 {
		t.Errorf("sent %d with %d waits, %v", n, waits, err)
	}
	if take(); took != size {
		t.Errorf("%d bytes came", took)
	}
}

// TestSlowClientOfMemory reads a response from memory, such as a compressed file, at one piece per
// minute.
func TestSlowClientOfMemory(t *testing.T) {
	const size = 10*chunk + 1
	for _, head := range []string{"", "header"} {
		c := &conn{head: []byte(head)}
		slow := &slowConn{}
		took := 0
		slow.Conn = copies{writerFunc(func(p []byte) (int, error) {
			took += len(p)
			c.until = time.Now() // nearly
			return len(p), nil
		})}
		c.Conn = slow
		if n, err := c.Write(make([]byte, size)); n != size || err != nil || took != size+len(head) || slow.deadlines != 11 {
			t.Errorf("wrote %d, %v; %d came, the deadline was moved %d times", n, err, took, slow.deadlines)
		}
	}
}

// TestSlowStream does the same through another layer, such as HTTP/2.
func TestSlowStream(t *testing.T) {
	w := &slowStream{ResponseRecorder: httptest.NewRecorder()}
	n, err := (&response{w, nil}).sendBytes(make([]byte, 10*chunk+1))
	if n != 10*chunk+1 || err != nil || int64(w.Body.Len()) != n || w.deadlines != 10 {
		t.Errorf("wrote %d, %v; %d came, the deadline was moved %d times", n, err, w.Body.Len(), w.deadlines)
	}
}

// TestEveryAnswerHasATime requests files, lists and errors through such a layer: a client that opens
// no window for a stream would otherwise keep it forever.
func TestEveryAnswerHasATime(t *testing.T) {
	files := map[string]string{"f.jpg": "small", "g.jpg": strings.Repeat("x", 3*chunk), "d/index.html": "index"}
	for i := range 3000 { // their list has more than two pieces
		files[fmt.Sprintf("list/%0100d", i)] = ""
	}
	h, err := Open(tree(t, files), Options{List: true})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	for path, want := range map[string]int{
		"/f.jpg": 200, "/g.jpg": 200, "/d/": 200, "/list/": 200, "/d": 301, "/d/index.html": 301, "/f.jpg/": 301, "/nothing": 404, "/.hidden": 404,
	} {
		for _, method := range []string{"GET", "HEAD", "POST"} {
			w := &slowStream{ResponseRecorder: httptest.NewRecorder()}
			h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
			if method == "POST" {
				want = 405
			}
			pieces := max(1, (w.Body.Len()+chunk-1)/chunk)
			if w.Code != want || w.deadlines < pieces {
				t.Errorf("%s %s: status %d, want %d; %d pieces, %d deadlines", method, path, w.Code, want, pieces, w.deadlines)
			}
		}
	}
}

type slowStream struct {
	*httptest.ResponseRecorder
	deadlines int
}

func (s *slowStream) SetWriteDeadline(time.Time) error { s.deadlines++; return nil }

// TestCloseEndsTransfer closes the connection during a transfer.
func TestCloseEndsTransfer(t *testing.T) {
	c, slow, _, r := slowTransfer(t, 4<<20)
	slow.wait = c.Close
	if n, err := c.sendFile(r); n == 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("%d bytes, %v", n, err)
	}
	if n, err := c.sendFile(r); n != 0 || !errors.Is(err, net.ErrClosed) {
		t.Errorf("again: %d bytes, %v", n, err)
	}
}

// TestNoSendfile sends to a destination that does not accept sendfile.
func TestNoSendfile(t *testing.T) {
	c, slow, _, r := slowTransfer(t, 300_000)
	// Every kind of socket accepts sendfile; a file opened with O_APPEND does not.
	file, err := os.OpenFile(filepath.Join(t.TempDir(), "out"), os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	slow.fd, slow.Conn = int(file.Fd()), copies{file}
	n, err := c.sendFile(r)
	if info, statErr := file.Stat(); n != 300_000 || err != nil || statErr != nil || info.Size() != n {
		t.Errorf("%d bytes, %v, %v", n, err, statErr)
	}
}

// copies is a connection that is written as a file is.
type copies struct{ io.Writer }

func (copies) Read([]byte) (int, error)         { return 0, io.EOF }
func (copies) Close() error                     { return nil }
func (copies) LocalAddr() net.Addr              { return nil }
func (copies) RemoteAddr() net.Addr             { return nil }
func (copies) SetDeadline(time.Time) error      { return nil }
func (copies) SetReadDeadline(time.Time) error  { return nil }
func (copies) SetWriteDeadline(time.Time) error { return nil }
