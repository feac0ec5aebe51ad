// SPDX-License-Identifier: MIT

package fileserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ringside-io/ringside/ufile"
)

// stallTimeout is how long a client may accept no byte of a response.
const stallTimeout = time.Minute

// listener returns connections that can send files.
type listener struct{ net.Listener }

// Accept implements net.Listener.
func (l listener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &conn{Conn: c}, nil
}

// connKey finds the connection in a request's context.
type connKey struct{}

// withConn is the ConnContext of a server.
func withConn(ctx context.Context, c net.Conn) context.Context {
	if c, ok := c.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// connOf returns the connection of a request, nil if there is a layer in between, such as TLS.
func connOf(r *http.Request) *conn {
	c, _ := r.Context().Value(connKey{}).(*conn)
	return c
}

// conn is a connection between net/http and a socket. It joins the header of a response with its
// body, and ends when its client does not take data.
type conn struct {
	net.Conn

	// hold reports whether the next write is a header that is kept for the write after it. All
	// three fields belong to the writer.
	hold  bool
	head  []byte
	until time.Time // the deadline of writes

	watch  watch
	reads  reads
	phase  atomic.Int32 // an http.ConnState, see phases
	closed atomic.Bool
}

// writev is implemented by connections of package unet, which net.Buffers does not know.
type writev interface {
	Writev(*net.Buffers) (int64, error)
}

// holdHeader keeps the next write, until releaseHeader or the write after it.
func (c *conn) holdHeader() { c.hold = true }

// releaseHeader sends a header that is still kept.
func (c *conn) releaseHeader() {
	c.hold = false
	if len(c.head) > 0 {
		_, _ = c.Write(nil) // the next write returns the error
	}
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (done int, err error) {
	if c.hold {
		c.hold = false
		c.head = append(c.head[:0], p...)
		return len(p), nil
	}
	for {
		piece := p[done:min(len(p), done+chunk)]
		n, err := c.writePiece(piece)
		if done += n; err != nil || done == len(p) {
			return done, err
		}
	}
}

// writePiece writes as many bytes as a slow client accepts in time, after the kept header.
func (c *conn) writePiece(p []byte) (int, error) {
	c.patience()
	if len(c.head) == 0 {
		return c.Conn.Write(p)
	}
	bufs := net.Buffers{c.head, p}
	held := len(c.head)
	n, err := c.writev(&bufs)
	c.head = c.head[:0]
	return max(0, int(n)-held), err
}

func (c *conn) writev(bufs *net.Buffers) (int64, error) {
	if v, ok := c.Conn.(writev); ok {
		return v.Writev(bufs)
	}
	return bufs.WriteTo(c.Conn)
}

// patience extends the deadline of writes from time to time.
func (c *conn) patience() {
	if now := time.Now(); c.until.Sub(now) < stallTimeout*3/4 {
		c.until = now.Add(stallTimeout)
		_ = c.Conn.SetWriteDeadline(c.until) // fails on a closed connection only; the write returns that error
	}
}

// SetWriteDeadline implements net.Conn.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.until = t
	return c.Conn.SetWriteDeadline(t)
}

// memory is a body in memory, for [conn.ReadFrom].
type memory struct{ p []byte }

// Read implements io.Reader.
func (m *memory) Read(p []byte) (int, error) {
	if len(m.p) == 0 {
		return 0, io.EOF
	}
	n := copy(p, m.p)
	m.p = m.p[n:]
	return n, nil
}

// fileRange is a part of a file, for [conn.ReadFrom].
type fileRange struct {
	file *ufile.File
	off  int64
	n    int64
}

// Read implements io.Reader.
func (f *fileRange) Read(p []byte) (int, error) {
	if f.n <= 0 {
		return 0, io.EOF
	}
	n, err := f.file.ReadAt(p[:min(int64(len(p)), f.n)], f.off)
	f.advance(int64(n))
	if n > 0 {
		err = nil
	}
	return n, err
}

func (f *fileRange) advance(n int64) {
	f.off += n
	f.n -= n
}

// ReadFrom sends a body: net/http calls it when the header has been written and the body needs no
// framing.
func (c *conn) ReadFrom(r io.Reader) (int64, error) {
	switch r := r.(type) {
	case *memory:
		n, err := c.Write(r.p)
		r.p = r.p[n:]
		return int64(n), err
	case *fileRange:
		return c.sendFile(r)
	}
	return io.Copy(struct{ io.Writer }{c}, r)
}

// sendFile makes the kernel send the bytes from the page cache to the socket.
func (c *conn) sendFile(r *fileRange) (int64, error) {
	c.patience()
	sent, handled, err := c.sendRange(r)
	if handled {
		return sent, err
	}
	return io.CopyBuffer(struct{ io.Writer }{c}, r, make([]byte, chunk))
}

// CloseWrite closes the sending side, so that a client reads the answer to a request whose rest the
// server does not read.
func (c *conn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// watch replaces the read by which net/http notices that a client disconnects during a response: a
// read of one byte without a deadline, which a deadline in the past ends. watch only waits for that
// deadline and reads nothing. A disconnected client is noticed when data are sent to it, and the read
// would cost each request a system call and an iteration of the poller.
type watch struct {
	mu    sync.Mutex
	ended chan struct{} // nil if no goroutine watches
	timed bool          // there is a deadline
	past  bool          // the deadline has passed
	done  bool          // the connection is closed
}

// wait waits for the end of the watch; it reports false for a read that is not a watch.
func (w *watch) wait() (bool, error) {
	w.mu.Lock()
	switch {
	case w.done:
		w.mu.Unlock()
		return true, net.ErrClosed
	case w.past:
		w.mu.Unlock()
		return true, os.ErrDeadlineExceeded
	case w.timed || w.ended != nil:
		w.mu.Unlock()
		return false, nil
	}
	ended := make(chan struct{})
	w.ended = ended
	w.mu.Unlock()
	<-ended
	return true, os.ErrDeadlineExceeded
}

// deadline records a deadline. A deadline in the past ends a watch.
func (w *watch) deadline(t time.Time) {
	w.mu.Lock()
	w.timed = !t.IsZero()
	w.past = w.timed && !t.After(time.Now())
	if w.past {
		w.end()
	}
	w.mu.Unlock()
}

// close ends the watch for good.
func (w *watch) close() {
	w.mu.Lock()
	w.done = true
	w.end()
	w.mu.Unlock()
}

func (w *watch) end() {
	if w.ended != nil {
		close(w.ended)
		w.ended = nil
	}
}

// reads holds the deadline of reads that net/http has set, which it does several times for a request,
// and the deadline that was set on the connection for the last read. The reading goroutine sets it, or
// another one during a read.
type reads struct {
	mu           sync.Mutex
	wanted, real time.Time
	reading      bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (int, error) {
	if len(p) == 1 {
		if watched, err := c.watch.wait(); watched {
			return 0, err
		}
	}
	r := &c.reads
	r.mu.Lock()
	r.reading = true
	err := c.apply()
	r.mu.Unlock()
	n := 0
	if err == nil {
		n, err = c.Conn.Read(p)
	}
	r.mu.Lock()
	r.reading = false
	r.mu.Unlock()
	return n, err
}

// apply sets the wanted deadline on the connection.
func (c *conn) apply() error {
	if c.reads.wanted.Equal(c.reads.real) {
		return nil
	}
	c.reads.real = c.reads.wanted
	return c.Conn.SetReadDeadline(c.reads.real)
}

// SetReadDeadline implements net.Conn.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.watch.deadline(t)
	c.reads.mu.Lock()
	defer c.reads.mu.Unlock()
	c.reads.wanted = t
	if !c.reads.reading {
		return nil
	}
	return c.apply()
}

// SetDeadline implements net.Conn.
func (c *conn) SetDeadline(t time.Time) error {
	return errors.Join(c.SetReadDeadline(t), c.SetWriteDeadline(t))
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.closed.Store(true)
	c.watch.close()
	return c.Conn.Close()
}
