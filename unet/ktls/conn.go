// SPDX-License-Identifier: MIT

package ktls

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// Conn is a TLS connection. All methods may be called concurrently. Reads run one after the
// other, and so do writes.
type Conn struct {
	tls     *tls.Conn
	wire    *wire
	require bool

	mu      sync.Mutex // of the handshake
	settled atomic.Bool
	err     error // why crypto/tls sends; nil if the kernel does
	failed  error // the result of the handshake

	active atomic.Int64 // twice the number of calls that write, and 1 after Close
}

func newConn(conn net.Conn, config *Config) *Conn {
	return &Conn{wire: &wire{Conn: conn}, require: config.Require}
}

// Handshake is HandshakeContext without a context.
func (c *Conn) Handshake() error { return c.HandshakeContext(context.Background()) }

// HandshakeContext does the handshake if no call has done it. After the end of ctx it fails,
// and the connection is closed. With Config.Require it fails if the kernel cannot send.
func (c *Conn) HandshakeContext(ctx context.Context) error {
	if c.settled.Load() {
		return c.failed
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.settled.Load() {
		return c.failed
	}
	if err := c.tls.HandshakeContext(ctx); err != nil {
		return err // crypto/tls returns it from now on
	}
	c.err = c.wire.handOver(c.tls.ConnectionState())
	if c.err != nil && c.require {
		c.failed = fmt.Errorf("ktls: Config.Require is set: %w", c.err)
		_ = c.tls.Close() // the connection is not used
	}
	c.settled.Store(true)
	return c.failed
}

// Backend returns "kernel" if the kernel encrypts what is sent, otherwise "crypto/tls" and
// the reason. Until the handshake is complete it returns "crypto/tls", and the reason states
// that.
func (c *Conn) Backend() (name, reason string) {
	if !c.settled.Load() {
		return backend(errors.New("the handshake is not complete"))
	}
	return backend(c.err)
}

// ConnectionState returns the details of the connection.
func (c *Conn) ConnectionState() tls.ConnectionState { return c.tls.ConnectionState() }

// NetConn returns the connection below. Reading or writing on it breaks the TLS connection.
func (c *Conn) NetConn() net.Conn { return c.wire.Conn }

// LocalAddr returns the local address.
func (c *Conn) LocalAddr() net.Addr { return c.wire.LocalAddr() }

// RemoteAddr returns the peer's address.
func (c *Conn) RemoteAddr() net.Addr { return c.wire.RemoteAddr() }

// SetDeadline sets the deadlines of the connection below.
func (c *Conn) SetDeadline(t time.Time) error { return c.wire.SetDeadline(t) }

// SetReadDeadline sets the deadline of reading.
func (c *Conn) SetReadDeadline(t time.Time) error { return c.wire.SetReadDeadline(t) }

// SetWriteDeadline sets the deadline of writing. If crypto/tls sends, a Write that reached
// it ends the connection.
func (c *Conn) SetWriteDeadline(t time.Time) error { return c.wire.SetWriteDeadline(t) }

// Read reads decrypted data, as tls.Conn's Read does. p belongs to the connection until Read
// returns.
func (c *Conn) Read(p []byte) (int, error) {
	if err := c.Handshake(); err != nil {
		return 0, err
	}
	return c.tls.Read(p)
}

// begin begins a call that writes, and reports whether the kernel sends. The caller calls
// end unless there is an error.
func (c *Conn) begin() (kernel bool, err error) {
	if c.active.Add(2)&1 != 0 {
		c.end()
		return false, net.ErrClosed
	}
	if err := c.Handshake(); err != nil {
		c.end()
		return false, err
	}
	if c.err != nil {
		return false, nil
	}
	if err := c.mayWrite(); err != nil {
		c.end()
		return false, err
	}
	return true, nil
}

func (c *Conn) end() { c.active.Add(-2) }

// mayWrite returns the error that a Write of crypto/tls has, of an alert that was sent or of
// CloseWrite, and ErrKeyUpdate after a KeyUpdate that was not answered.
func (c *Conn) mayWrite() error {
	if _, err := c.tls.Write(nil); err != nil {
		return err
	}
	if c.wire.refused.Load() {
		c.wire.abort()
		return ErrKeyUpdate
	}
	return nil
}

// Write sends all of p. p belongs to the connection until Write returns.
func (c *Conn) Write(p []byte) (int, error) {
	kernel, err := c.begin()
	if err != nil {
		return 0, err
	}
	defer c.end()
	if !kernel {
		return c.tls.Write(p)
	}
	return c.send(p)
}

// Writev sends all buffers, in one system call if the kernel sends, and removes from bufs
// what was sent.
func (c *Conn) Writev(bufs *net.Buffers) (int64, error) {
	kernel, err := c.begin()
	if err != nil {
		return 0, err
	}
	defer c.end()
	switch v, ok := c.wire.Conn.(writev); {
	case !kernel:
		return bufs.WriteTo(c.tls)
	case ok:
		return v.Writev(bufs)
	}
	return bufs.WriteTo(c.wire.Conn)
}

// writev is a method of connections of package unet.
type writev interface {
	Writev(*net.Buffers) (int64, error)
}

// send writes plaintext to the socket. It uses calls that enter the scheduler: to encrypt
// takes long, and the kernel may wait for other processors in it.
func (c *Conn) send(p []byte) (int, error) {
	v, ok := c.wire.Conn.(writev)
	if !ok || len(p) == 0 {
		return c.wire.Conn.Write(p)
	}
	n, err := v.Writev(&net.Buffers{p})
	if op, ok := err.(*net.OpError); ok {
		op.Op = "write"
	}
	return int(n), err
}

// sendChunk limits one call of sendfile.
const sendChunk = 4 << 20

// ReadFrom sends the data of r until its end. If the kernel sends and r is a file, or an
// io.LimitedReader of one, it is sent by sendfile(2) from its position. r may be
// any type with the method SyscallConn, such as os.File and ufile.File.
func (c *Conn) ReadFrom(r io.Reader) (int64, error) {
	src, limit := r, int64(math.MaxInt64)
	limited, ok := r.(*io.LimitedReader)
	if ok {
		src, limit = limited.R, limited.N
	}
	var sent int64
	if file := fileOf(src); file != nil && limit > 0 {
		var handled bool
		var err error
		sent, handled, err = c.sendFile(file, limit)
		if limited != nil {
			limited.N -= sent
		}
		if handled {
			return sent, err
		}
	}
	n, err := io.Copy(struct{ io.Writer }{c}, r)
	return sent + n, err
}

// fileOf returns the descriptor of r if it may be a file.
func fileOf(r io.Reader) syscall.RawConn {
	file, ok := r.(syscall.Conn)
	if !ok {
		return nil
	}
	if _, socket := r.(net.Conn); socket {
		return nil
	}
	raw, err := file.SyscallConn()
	if err != nil {
		return nil
	}
	return raw
}

// sendFile sends up to limit bytes from the position of a file. If handled is false, the
// caller copies the rest.
func (c *Conn) sendFile(file syscall.RawConn, limit int64) (sent int64, handled bool, err error) {
	for sent < limit {
		n, errno := 0, syscall.Errno(0)
		var unreadable error
		err := c.RawWrite(func(socket uintptr) bool {
			unreadable = file.Control(func(in uintptr) {
				n, errno = sys.SockSendFile(int(socket), int(in), int(min(limit-sent, sendChunk)))
			})
			return unreadable != nil || errno != syscall.EAGAIN
		})
		sent += int64(n)
		switch {
		case errors.Is(err, errNotKernel):
			return sent, false, nil
		case err != nil:
			return sent, true, err
		case unreadable != nil || noSendFile(errno):
			return sent, false, nil // reading it returns the error, if there is one
		case errno == syscall.EINTR:
		case errno != 0:
			return sent, true, c.opError(os.NewSyscallError("sendfile", errno))
		case n == 0:
			return sent, true, c.flush()
		}
	}
	return sent, true, nil
}

// flush sends what the kernel keeps of a record. sendfile was asked for more than the file had,
// and a kernel may then keep the end of the file to join it with what follows. Debian's 6.1 and
// 6.12 do not.
func (c *Conn) flush() error {
	c.wire.mu.Lock()
	defer c.wire.mu.Unlock()
	return c.wire.sendRecord(recordData, nil)
}

// noSendFile reports whether an error means that sendfile does not support the file.
func noSendFile(errno syscall.Errno) bool {
	switch errno {
	case syscall.EINVAL, syscall.ENOSYS, syscall.EOPNOTSUPP, syscall.EPERM, syscall.EIO, syscall.EOVERFLOW:
		return true
	}
	return false
}

func (c *Conn) opError(err error) error {
	return &net.OpError{Op: "write", Net: c.LocalAddr().Network(), Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: err}
}

var errNotKernel = errors.New("ktls: the kernel does not encrypt this connection (Backend)")

// RawWrite calls f with the socket's descriptor, and again each time the socket has room,
// until f returns true: what f sends there, for example by sendfile(2), is encrypted by the
// kernel. It returns an error without calling f if crypto/tls sends. f must not block and
// must not use the descriptor for anything else.
func (c *Conn) RawWrite(f func(fd uintptr) bool) error {
	kernel, err := c.begin()
	if err != nil {
		return err
	}
	defer c.end()
	if !kernel {
		return errNotKernel
	}
	refused := false
	err = c.wire.raw.Write(func(fd uintptr) bool {
		refused = c.wire.refused.Load()
		return refused || f(fd)
	})
	if err == nil && refused {
		err = c.mayWrite()
	}
	return err
}

// CloseWrite sends the alert close_notify, after which the peer reads the end. It may be
// called after the handshake.
func (c *Conn) CloseWrite() error { return c.tls.CloseWrite() }

// Close sends the alert close_notify, for at most five seconds, and closes the connection.
// If a call is writing, no alert is sent and that call returns an error, as with crypto/tls.
func (c *Conn) Close() error {
	for {
		x := c.active.Load()
		if x&1 != 0 {
			return net.ErrClosed
		}
		if c.active.CompareAndSwap(x, x|1) {
			if x != 0 {
				return c.wire.Conn.Close()
			}
			return c.tls.Close()
		}
	}
}
