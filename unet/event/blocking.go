// SPDX-License-Identifier: MIT

package event

import (
	"io"
	"iter"
	"net"
	"os"
	"sync"
	"time"
)

// Blocking returns a [Handler] that calls serve for each connection. Code written for a
// net.Conn then costs nearly as little as callbacks. serve runs as a coroutine: the loop
// switches to it, and Read and Write switch back while they wait. When serve returns, the
// connection is closed as by [Conn.Close]. OnPanic may be added to the Handler.
//
// Everything else that blocks in serve (a mutex, a channel, a sleep, another connection)
// delays all connections of the loop, as in any callback. Do such work in other
// goroutines. Only serve's own goroutine may call Read and Write. Other goroutines may
// call Close and the methods for deadlines and addresses. Neither serve nor a callback of
// the server may call runtime.LockOSThread, because Go would then end the process.
//
// Write returns when the loop has accepted all bytes. Up to [Options].WriteLimit plus 64
// KiB of them may be pending. [Server.Shutdown] ends the direction to the peer. Read
// fails when the peer has ended its direction.
func Blocking(serve func(c net.Conn)) Handler {
	return Handler{
		OnOpen: func(c *Conn) {
			_ = c.LocalAddr() // Another goroutine may ask after the end.
			b := &blockingConn{c: c}
			c.blocking = b
			b.next, _ = iter.Pull(func(yield func(struct{}) bool) {
				b.yield = yield
				serve(b)
			})
			b.step()
		},
		OnData:     func(c *Conn, p []byte) { c.blocking.data(p) },
		OnEOF:      func(c *Conn) { c.blocking.eof = true; c.blocking.step() },
		OnWritable: func(c *Conn) { c.blocking.step() },
		OnTimer:    func(c *Conn) { c.blocking.step() },
		OnClose: func(c *Conn, err error) {
			b := c.blocking
			if b.err = err; err == nil {
				b.err = net.ErrClosed
			}
			b.step()
		},
	}
}

// blockingConn is the net.Conn of [Blocking]. Fields without another comment belong to
// the loop and the coroutine, of which one runs at a time.
type blockingConn struct {
	c     *Conn
	next  func() (struct{}, bool) // switches to the coroutine
	yield func(struct{}) bool     // switches back

	in     []byte // received, and not yet read
	kept   []byte // memory for in after OnData has returned
	paused bool
	eof    bool  // the peer has ended its direction
	err    error // OnClose was called

	mu      sync.Mutex // guards the rest
	closed  bool       // by Close
	waits   bool       // the coroutine waits
	readBy  time.Time
	writeBy time.Time
}

// step runs the coroutine until it waits or ends. It may be called before the event that
// the coroutine waits for.
func (b *blockingConn) step() {
	if _, more := b.next(); !more {
		_ = b.c.Close() // It returns no error.
	}
}

// data passes received data to the coroutine, and keeps the bytes that it has not read.
func (b *blockingConn) data(p []byte) {
	defer func() { // the coroutine may end the goroutine
		if len(b.in) > 0 {
			b.kept = append(b.kept[:0], b.in...)
			b.in = b.kept
			if !b.paused {
				b.paused = true
				b.c.PauseRead()
			}
		}
	}()
	if len(b.in) > 0 {
		b.in = append(b.in, p...)
	} else {
		b.in = p
	}
	b.step()
}

// Read implements net.Conn.
func (b *blockingConn) Read(p []byte) (int, error) {
	for {
		switch err := b.state(&b.readBy); {
		case err != nil:
			return 0, b.c.opError("read", err)
		case len(p) == 0:
			return 0, nil
		case len(b.in) > 0:
			n := copy(p, b.in)
			if b.in = b.in[n:]; len(b.in) == 0 && cap(b.kept) > keptMemory {
				b.in, b.kept = nil, nil
			}
			return n, nil
		case b.eof || b.err == io.EOF:
			return 0, io.EOF
		case b.err != nil:
			return 0, b.c.endError("read", b.err)
		}
		if b.paused {
			b.paused = false
			b.c.ResumeRead()
		}
		b.wait(&b.readBy)
	}
}

// keptMemory is the largest memory that an idle connection holds.
const keptMemory = 4 << 10

// blockingPiece is how much Write gives to the loop at once.
const blockingPiece = 64 << 10

// Write implements net.Conn.
func (b *blockingConn) Write(p []byte) (n int, err error) {
	for {
		switch err := b.state(&b.writeBy); {
		case err != nil:
			return n, b.c.opError("write", err)
		case b.err != nil:
			return n, b.c.endError("write", b.err)
		}
		k, err := b.c.Write(p[n:min(len(p), n+blockingPiece)])
		if n += k; err != nil && err != ErrFull || n == len(p) {
			return n, err
		}
		if err == ErrFull {
			b.wait(&b.writeBy)
		}
	}
}

// state returns the error of a call that must not wait, because the connection was closed
// or its deadline has passed.
func (b *blockingConn) state(by *time.Time) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return net.ErrClosed
	case !by.IsZero() && !time.Now().Before(*by):
		return os.ErrDeadlineExceeded
	}
	return nil
}

// wait switches to the loop until something has happened, or until the deadline.
func (b *blockingConn) wait(by *time.Time) {
	b.mu.Lock()
	if b.closed { // since the caller has checked it
		b.mu.Unlock()
		return
	}
	b.waits = true
	deadline := *by
	b.mu.Unlock()
	if !deadline.IsZero() {
		b.c.SetTimer(max(time.Until(deadline), 1))
	}
	b.yield(struct{}{})
	b.mu.Lock()
	b.waits = false
	b.mu.Unlock()
}

// change calls f, which changes fields that the mutex guards, and resumes a waiting coroutine.
func (b *blockingConn) change(f func()) {
	b.mu.Lock()
	f()
	waits := b.waits
	b.mu.Unlock()
	if waits {
		b.c.Post(b.step)
	}
}

// Close implements net.Conn. Pending bytes are sent first.
func (b *blockingConn) Close() error {
	closed := false
	b.change(func() { closed, b.closed = b.closed, true })
	if closed {
		return b.c.opError("close", net.ErrClosed)
	}
	return b.c.Close()
}

// CloseWrite ends the direction to the peer, after pending bytes.
func (b *blockingConn) CloseWrite() error { return b.c.CloseWrite() }

// SetDeadline implements net.Conn.
func (b *blockingConn) SetDeadline(t time.Time) error {
	b.change(func() { b.readBy, b.writeBy = t, t })
	return nil
}

// SetReadDeadline implements net.Conn.
func (b *blockingConn) SetReadDeadline(t time.Time) error {
	b.change(func() { b.readBy = t })
	return nil
}

// SetWriteDeadline implements net.Conn.
func (b *blockingConn) SetWriteDeadline(t time.Time) error {
	b.change(func() { b.writeBy = t })
	return nil
}

// LocalAddr implements net.Conn.
func (b *blockingConn) LocalAddr() net.Addr { return b.c.LocalAddr() }

// RemoteAddr implements net.Conn.
func (b *blockingConn) RemoteAddr() net.Addr { return b.c.RemoteAddr() }
