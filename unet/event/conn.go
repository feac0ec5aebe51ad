// SPDX-License-Identifier: MIT

package event

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/watch"
)

var (
	errEOF     = io.EOF
	errTimeout = os.ErrDeadlineExceeded
	past       = time.Unix(1, 0) // a deadline that has passed
)

// Conn is a connection of a server. Its methods may be called concurrently, from any
// goroutine and from callbacks. After OnClose they return net.ErrClosed or do nothing.
type Conn struct {
	server   *Server
	handler  *Handler
	back     backend
	bstate   backendState // of the backend
	network  string
	names    *addrs        // nil until they are asked for; guarded by mu
	blocking *blockingConn // by Blocking
	secure   *secure       // TLS, of the backends with loops

	mu     sync.Mutex
	out    outQueue
	state  state
	err    error // why the connection ends
	value  any
	expiry time.Time // of the timer, zero for none
}

// newConn returns a connection that is not served yet.
func (s *Server) newConn(back backend, network string, o ConnOptions) *Conn {
	c := &Conn{server: s, back: back, network: network, handler: o.Handler, value: o.Value}
	if c.handler == nil {
		c.handler = &s.handler
	}
	return c
}

// backend serves connections.
type backend interface {
	// idle reports whether a Write may send at once, because the loop sleeps.
	idle() bool
	// sendNow sends as much of p as fits without blocking. The caller holds the
	// connection's mutex. Nothing is pending, or p is the first that is.
	sendNow(c *Conn, p []byte) int
	// notify makes the backend process the connection.
	notify(c *Conn)
	// exited is called by a callback's goroutine while runtime.Goexit ends it.
	exited(c *Conn)
	// do runs f as a callback of the connection.
	do(c *Conn, f func())
	// addrs returns the addresses of the connection, nil for those that are not known. The
	// caller holds the connection's mutex.
	addrs(c *Conn) *addrs
}

// addrs are the addresses of a connection.
type addrs [2]net.Addr

const localAddr, remoteAddr = 0, 1

// state holds the caller's requests and their progress. The connection's mutex guards it.
type state struct {
	notified    bool // the backend will process the connection
	paused      bool // by PauseRead
	writableDue bool // a Write was refused, OnWritable is due
	closing     bool // by Close: send the pending bytes, then close
	finWrite    bool // by CloseWrite: send the pending bytes, then end the direction
	finSent     bool // the direction has ended
	aborted     bool // by Abort: close now
	eof         bool // the peer has ended its direction
	closed      bool // OnClose is being called or was called
	timer       bool // the timer has changed
	full        bool // WriteLimit is reached: nothing is read
	duplex      bool // by SetFullDuplex: full does not stop reading
}

// Write accepts p for sending: either all of it or, with [ErrFull], none of it. It copies
// p and does not block. Concurrent Writes are sent in the order of the calls and do not
// interleave. After [Conn.Close] or [Conn.CloseWrite], and when the connection has ended,
// the error is net.ErrClosed, in a *net.OpError. Success does not mean that the peer has
// received the bytes.
func (c *Conn) Write(p []byte) (int, error) {
	if c.secure != nil {
		return c.secure.write(p, nil)
	}
	c.mu.Lock()
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	n := len(p)
	p = p[c.sendNow(p):]
	if len(p) > 0 {
		c.out.add(p)
		c.noteFull()
		c.notifyAndUnlock()
		return n, nil
	}
	c.mu.Unlock()
	return n, nil
}

// largePiece is the number of bytes of lent memory from which a worker thread of the
// kernel may send them, if loops have other large pieces to send.
const largePiece = 256 << 10

// directFrom is the number of bytes from which a separate system call costs less than
// copying them.
const directFrom = 16 << 10

// sendNow sends as much of p as the kernel takes at once, if nothing is pending, and
// returns how much that is. Short writes of callbacks are not sent at once but together
// with the writes of other connections. The caller holds mu.
func (c *Conn) sendNow(p []byte) int {
	if c.out.n > 0 || len(p) < directFrom && (c.state.notified || !c.back.idle()) {
		return 0
	}
	sent := 0
	for sent < len(p) {
		n := c.back.sendNow(c, p[sent:])
		if n == 0 {
			break
		}
		sent += n
	}
	return sent
}

// sendRest sends as much of the pending bytes as the kernel takes at once. The caller holds mu.
func (c *Conn) sendRest() {
	for !c.out.busy && c.out.n > 0 {
		n := c.back.sendNow(c, c.out.front())
		if n == 0 {
			return
		}
		c.out.advance(n)
	}
}

// WriteFunc is [Conn.Write] without the copy: p must not be changed until done is called.
// done is called once, as a callback of the connection. Its argument is nil when the
// kernel has taken all of p. Otherwise it is the error that ends the connection, and done
// is called before OnClose. If WriteFunc returns an error, it has accepted nothing and
// does not call done. For short pieces Write costs less. With TLS done is called when p
// has been encrypted.
func (c *Conn) WriteFunc(p []byte, done func(err error)) error {
	if c.secure != nil {
		_, err := c.secure.write(p, done)
		return err
	}
	c.mu.Lock()
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return err
	}
	large := len(p) >= largePiece
	if large {
		c.server.large.Add(1)
	}
	if !large || !c.server.offloads() {
		p = p[c.sendNow(p):]
	}
	c.out.lend(p, done, large)
	c.noteFull()
	c.notifyAndUnlock()
	return nil
}

// offloads reports whether worker threads of the kernel send large pieces, because there
// are more large pieces than loops.
func (s *Server) offloads() bool { return int(s.large.Load()) > s.opts.Loops }

// SendFile sends n bytes of f, starting at offset, in order with the Writes. It uses
// sendfile where the system has it. f must stay open until done is called, and its
// position does not change. done is called as in [Conn.WriteFunc]. If the file is too
// short (io.ErrUnexpectedEOF) or cannot be read, the connection ends with the error.
// Reading the file does not block the loop. With TLS the error is errors.ErrUnsupported.
func (c *Conn) SendFile(f *os.File, offset, n int64, done func(err error)) error {
	if c.secure != nil || c.overTLS() {
		return c.opError("write", fmt.Errorf("SendFile cannot encrypt: use WriteFunc with TLS: %w", errors.ErrUnsupported))
	}
	if offset < 0 || n < 0 || n > maxFile {
		return c.opError("write", fmt.Errorf("SendFile of %d bytes from %d: %w", n, offset, os.ErrInvalid))
	}
	c.mu.Lock()
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return err
	}
	c.out.lendFile(fileRange{f, offset, int(n)}, done)
	c.noteFull()
	c.notifyAndUnlock()
	return nil
}

// overTLS reports whether the net backend has TLS on the connection.
func (c *Conn) overTLS() bool {
	if c.bstate.net == nil {
		return false
	}
	_, ok := c.bstate.net.conn.(*tls.Conn)
	return ok
}

// isAborted reports whether the connection ends without sending the pending bytes.
func (c *Conn) isAborted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.aborted || c.state.closed
}

// callFinished calls the done functions whose memory or file is no longer in use.
func (c *Conn) callFinished() {
	for {
		c.mu.Lock()
		if len(c.out.finished) == 0 {
			c.mu.Unlock()
			return
		}
		f := c.out.finished[0]
		c.out.finished = c.out.finished[1:]
		c.mu.Unlock()
		if f.large {
			c.server.large.Add(-1)
		}
		c.run(func() { f.done(f.err) })
	}
}

// failLent calls done, with the reason for the end, for all lent memory that was not sent.
func (c *Conn) failLent() {
	c.mu.Lock()
	if err := c.reason(); err != nil {
		c.out.fail(err)
	} else {
		c.out.fail(net.ErrClosed)
	}
	c.mu.Unlock()
	c.callFinished()
}

// setClosed calls done for all lent memory and then marks the connection closed: no memory is lent
// to it any more. Only if the loop has failed can a Write still be encrypting.
func (c *Conn) setClosed() {
	for {
		c.failLent()
		c.mu.Lock()
		encrypts := c.secure != nil && c.secure.writing > 0
		if len(c.out.finished) == 0 && !encrypts {
			break
		}
		c.mu.Unlock()
		if encrypts {
			time.Sleep(retryPause)
		}
	}
	c.state.closed = true
	c.mu.Unlock()
}

// Writev is [Conn.Write] of several buffers as one piece. It copies the buffers and does
// not change bufs.
func (c *Conn) Writev(bufs net.Buffers) (int64, error) {
	if c.secure != nil {
		n, err := c.secure.write(bytes.Join(bufs, nil), nil)
		return int64(n), err
	}
	c.mu.Lock()
	if err := c.writeError(); err != nil {
		c.mu.Unlock()
		return 0, err
	}
	n := 0
	for _, p := range bufs {
		n += len(p)
		if n >= directFrom {
			p = p[c.sendNow(p):]
		}
		c.out.add(p)
	}
	if c.out.n == 0 {
		c.mu.Unlock()
		return int64(n), nil
	}
	c.noteFull()
	c.notifyAndUnlock()
	return int64(n), nil
}

// writeError returns the error of a Write that cannot be accepted. The caller holds mu.
func (c *Conn) writeError() error {
	switch {
	case c.ends():
		return c.opError("write", net.ErrClosed)
	case c.out.n >= c.server.opts.WriteLimit:
		c.state.writableDue = true
		return ErrFull
	}
	return nil
}

// ends reports whether nothing more can be written. The caller holds mu.
func (c *Conn) ends() bool {
	s := &c.state
	return s.closing || s.finWrite || s.aborted || s.closed
}

func (c *Conn) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: c.network, Source: nil, Addr: nil, Err: err}
}

// endError returns the error of a call on a connection that has ended because of err.
func (c *Conn) endError(op string, err error) error {
	if _, ok := err.(*net.OpError); ok {
		return err
	}
	return c.opError(op, err)
}

// notifyAndUnlock makes the backend process the connection.
func (c *Conn) notifyAndUnlock() {
	notify := !c.state.notified && !c.state.closed
	c.state.notified = true
	c.mu.Unlock()
	if notify {
		c.back.notify(c)
	}
}

// Pending returns how many bytes the connection has accepted and the kernel has not taken
// yet.
func (c *Conn) Pending() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.out.n
}

// Full reports whether [Options].WriteLimit bytes, or more, are pending, so that a Write
// would return [ErrFull]. If so, OnWritable is called when there is room. A handler that
// forwards data from another connection should pause that connection meanwhile.
func (c *Conn) Full() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	full := c.out.n >= c.server.opts.WriteLimit
	c.state.writableDue = c.state.writableDue || full
	return full
}

// Close sends the pending bytes and then closes the connection. It does not wait for
// that: OnClose is called later, with nil. After a callback in progress has returned,
// OnData is not called again. A peer that does not read keeps the connection alive;
// see [Conn.SetTimer] and [Conn.Abort]. If received bytes were not read, or the peer still
// sends, TCP resets the connection, and the peer may lose the pending bytes: to avoid that, call
// [Conn.CloseWrite] and wait for OnEOF. A second call does nothing.
func (c *Conn) Close() error {
	c.mu.Lock()
	if c.state.closing || c.state.closed {
		c.mu.Unlock()
		return nil
	}
	c.state.closing = true
	c.notifyAndUnlock()
	return nil
}

// CloseWrite sends the pending bytes and then ends the direction to the peer (TCP FIN).
// OnData is still called until the peer ends its direction.
func (c *Conn) CloseWrite() error {
	c.mu.Lock()
	if c.state.closing || c.state.closed || c.state.aborted {
		c.mu.Unlock()
		return c.opError("close", net.ErrClosed)
	}
	c.state.finWrite = true
	c.notifyAndUnlock()
	return nil
}

// Abort drops the pending bytes and closes the connection. A TCP peer sees a reset.
// OnClose is called with net.ErrClosed.
func (c *Conn) Abort() {
	c.mu.Lock()
	c.fail(net.ErrClosed)
	c.notifyAndUnlock()
}

// fail ends the connection because of err. The caller holds mu.
func (c *Conn) fail(err error) {
	if !c.state.aborted {
		c.state.aborted = true
		c.err = err
	}
}

// PauseRead stops calls of OnData until [Conn.ResumeRead]. Data that has arrived is kept,
// and TCP's flow control stops the peer. The end of the stream and a broken connection
// may be noticed only after ResumeRead, or by writing. OnEOF is called after all data has
// been passed to OnData.
func (c *Conn) PauseRead() { c.setPaused(true) }

// ResumeRead undoes [Conn.PauseRead].
func (c *Conn) ResumeRead() { c.setPaused(false) }

func (c *Conn) setPaused(paused bool) {
	c.mu.Lock()
	c.state.paused = paused
	c.notifyAndUnlock()
}

// SetFullDuplex sets whether reading continues while [Options].WriteLimit bytes are
// pending. By default it stops, so that nothing is read from a peer that does not read.
// Set it for protocols in which the peer may send without limit before it reads. Set it
// also for proxies, where each side would wait for the other. Write then returns
// [ErrFull], and the handler must call [Conn.PauseRead] itself.
func (c *Conn) SetFullDuplex(on bool) {
	c.mu.Lock()
	c.state.duplex = on
	c.notifyAndUnlock()
}

// SetTimer makes the server call OnTimer once after d. It replaces an earlier timer that
// has not fired. With d = 0 or less it stops the timer. Moving the timer to a later time
// is cheap enough to be done for every message.
func (c *Conn) SetTimer(d time.Duration) {
	var at time.Time
	if d > 0 {
		at = time.Now().Add(d)
	}
	c.mu.Lock()
	c.expiry = at
	if at.IsZero() || c.bstate.covers(at) {
		c.mu.Unlock()
		return
	}
	c.state.timer = true
	c.notifyAndUnlock()
}

// Post makes the server call f as a callback of the connection, so that it does not
// overlap other callbacks. If a callback calls Post, f is called after that callback has
// returned. After OnClose Post does nothing.
func (c *Conn) Post(f func()) { c.back.do(c, f) }

// Server returns the server of the connection.
func (c *Conn) Server() *Server { return c.server }

// SetValue attaches a value to the connection, for [Conn.Value].
func (c *Conn) SetValue(v any) {
	c.mu.Lock()
	c.value = v
	c.mu.Unlock()
}

// Value returns the value that [Conn.SetValue] or [ConnOptions].Value attached, nil if
// neither has.
func (c *Conn) Value() any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.value
}

// LocalAddr returns the local address. It is never nil, and [Conn.RemoteAddr] has what holds
// after OnClose.
func (c *Conn) LocalAddr() net.Addr { return c.addr(localAddr) }

// RemoteAddr returns the peer's address, also while and after the connection breaks. It is
// never nil. The connection keeps the address from the first call of LocalAddr or RemoteAddr
// on. If that comes after OnClose has returned, the result is the zero address of the network.
func (c *Conn) RemoteAddr() net.Addr { return c.addr(remoteAddr) }

// addr returns the local or the remote address, never nil: one without content if the socket was reset.
func (c *Conn) addr(which int) net.Addr {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names == nil {
		c.names = c.back.addrs(c)
	}
	switch a := c.names[which]; {
	case a != nil:
		return a
	case c.network == "unix":
		return &net.UnixAddr{Net: "unix"}
	}
	return &net.TCPAddr{}
}

// isClosed reports whether OnClose was called.
func (c *Conn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state.closed
}

// noteFull sets full when WriteLimit is reached, and clears it when at most half of it is
// pending. The caller holds mu.
func (c *Conn) noteFull() {
	if limit := c.server.opts.WriteLimit; c.out.n >= limit {
		c.state.full = true
	} else if c.out.n <= limit/2 {
		c.state.full = false
		if c.secure != nil {
			c.secure.own = 0
		}
	}
}

// blocked reports whether nothing is read because WriteLimit is reached. In full duplex that
// stops reading only when crypto/tls has added as much by itself: it answers each KeyUpdate of
// the peer, however much is pending. The caller holds mu.
func (c *Conn) blocked() bool {
	s := &c.state
	return s.full && (!s.duplex || c.secure != nil && c.secure.own >= max(c.server.opts.WriteLimit, recordBytes))
}

// wantsInput reports whether OnData may be called. The caller holds mu.
func (c *Conn) wantsInput() bool {
	s := &c.state
	c.noteFull()
	if c.secure != nil && c.secure.inputFull {
		return false
	}
	return !s.paused && !s.closing && !s.aborted && !s.eof && !c.blocked()
}

// resets reports whether a connection that ends because of err is reset: the peer may not
// have received everything that was written.
func resets(err error) bool {
	_, failed := err.(*HandlerError)
	return failed || err == net.ErrClosed
}

// takeWritable reports whether OnWritable is due. If so, the caller must call it. The
// caller holds mu.
func (c *Conn) takeWritable() bool {
	if !c.state.writableDue || c.out.n > c.server.opts.WriteLimit/2 || c.state.closing || c.state.aborted {
		return false
	}
	c.state.writableDue = false
	return true
}

// takeAlarm handles the alarm that was set for at, and reports whether the timer is due.
// The caller holds mu.
func (c *Conn) takeAlarm(at, now time.Time) bool {
	if c.state.closed || !c.bstate.wakeAt.Equal(at) {
		return false
	}
	c.bstate.wakeAt = time.Time{}
	if c.expiry.IsZero() || now.Before(c.expiry) {
		return false
	}
	c.expiry = time.Time{}
	return true
}

// reason returns the error for OnClose. The caller holds mu.
func (c *Conn) reason() error {
	var failed *HandlerError
	switch {
	case errors.As(c.err, &failed):
		return failed
	case errors.Is(c.err, net.ErrClosed):
		return net.ErrClosed
	case errors.Is(c.err, errEOF):
		return errEOF
	}
	return c.err
}

// Calls of the handler. Each returns normally, or aborts the connection and ends in a
// panic or in runtime.Goexit.

// handshakeResult returns the channel for the result of the TLS handshake that Enroll awaits.
func (c *Conn) handshakeResult() chan error {
	if c.secure != nil {
		return c.secure.result
	}
	return c.bstate.net.result
}

// handshakeEnded reports the result of the TLS handshake to Enroll, if it waits.
func (c *Conn) handshakeEnded(err error) {
	select {
	case c.handshakeResult() <- err:
	default:
	}
}

// handshakeFailed reports a failed handshake to Enroll and to the handler.
func (c *Conn) handshakeFailed(err error) {
	if err == nil {
		err = net.ErrClosed
	}
	c.handshakeEnded(err)
	if f := c.handler.OnHandshakeError; f != nil {
		c.run(func() { f(c, err) })
	}
}

// run calls f as a callback. f is on the stack.
func (c *Conn) run(f func()) {
	returned := false
	defer func() {
		if returned {
			return
		}
		value, handle := recover(), c.handler.OnPanic
		if value != nil && handle == nil {
			panic(value) // on the same stack, so that the report shows it
		}
		c.mu.Lock()
		c.fail(&HandlerError{value})
		c.state.notified = true
		c.mu.Unlock()
		c.back.notify(c)
		if value == nil {
			c.back.exited(c)
		} else {
			handle(c, value)
		}
	}()
	f()
	returned = true
}

// runApart calls f, which may call the program's functions, outside of the callbacks, and
// reports whether f has returned. A panic, or runtime.Goexit, in f ends the connection as one in
// a callback does. calls is held while OnPanic is called, so that no callback overlaps it.
func (c *Conn) runApart(calls sync.Locker, f func()) (returned bool) {
	defer func() {
		if returned {
			return
		}
		value, handle := recover(), c.handler.OnPanic
		if value != nil && handle == nil {
			panic(value) // on the same stack, so that the report shows it
		}
		c.mu.Lock()
		c.fail(&HandlerError{value})
		c.mu.Unlock()
		if value == nil && c.bstate.net != nil {
			c.back.exited(c)
		}
		if value != nil {
			calls.Lock()
			defer calls.Unlock()
			handle(c, value)
		}
		c.mu.Lock()
		c.notifyAndUnlock()
	}()
	f()
	return true
}

// callOnOpen, callOnData and callOnEOF call the handler with decrypted data.
func (c *Conn) callOnOpen() {
	if f := c.handler.OnOpen; f != nil {
		c.run(func() { f(c) })
	}
}

// callOnData drops the data when everything is being aborted.
func (c *Conn) callOnData(p []byte) {
	if f := c.handler.OnData; f != nil && !c.server.aborting.Load() {
		c.run(func() { f(c, p) })
	}
}

func (c *Conn) callOnEOF() bool {
	f := c.handler.OnEOF
	if f != nil {
		c.run(func() { f(c) })
	}
	return f != nil
}

// chunk is memory with bytes to send. It belongs to one connection; from the submission
// of a send to its completion it belongs to the kernel.
type chunk struct {
	b     []byte // the bytes to send
	next  *chunk
	class int
	done  func(error) // for lent memory, nil for the server's own
	large bool        // lent, and counted in Server.large
	file  *fileRange  // to be sent instead of b
}

// chunkSizes are the lengths of chunks. A short response takes a small chunk. For a peer
// that reads slowly large chunks are used, so that there are few. The third holds 64 KiB with
// the overhead of TLS.
var chunkSizes = [...]int{2 << 10, 16 << 10, 72 << 10, 256 << 10}

// grownClass is the largest class that is used for short pieces.
const grownClass = 2

// chunkPools hold unused chunks, by class.
var chunkPools [len(chunkSizes)]sync.Pool

func newChunk(class int) *chunk {
	if ch, ok := chunkPools[class].Get().(*chunk); ok {
		return ch
	}
	return &chunk{b: make([]byte, 0, chunkSizes[class]), class: class}
}

func (ch *chunk) free() {
	if ch.done != nil {
		return
	}
	sys.Poison(ch.b)
	ch.b = ch.b[:0:chunkSizes[ch.class]]
	ch.next = nil
	chunkPools[ch.class].Put(ch)
}

// classFor returns the smallest class that holds n bytes, the largest if none.
func classFor(n int) int {
	for i, size := range chunkSizes {
		if n <= size {
			return i
		}
	}
	return len(chunkSizes) - 1
}

// fileRange is a part of a file that has to be sent.
type fileRange struct {
	f    *os.File
	off  int64
	left int
}

// from returns the range without its first n bytes.
func (r fileRange) from(n int) fileRange { return fileRange{r.f, r.off + int64(n), r.left - n} }

const (
	// filePiece is how many bytes of a file one call sends.
	filePiece = 1 << 20
	// fileWait is how long such a call waits for the peer to read.
	fileWait = time.Millisecond
	// maxFile is the largest part of a file that SendFile accepts: Pending returns an
	// int.
	maxFile = math.MaxInt / 4
)

// outQueue holds the bytes that Write has accepted and the kernel has not yet taken. The
// connection's mutex guards it.
type outQueue struct {
	head, tail *chunk
	n          int  // bytes
	off        int  // bytes of the head that were sent
	busy       bool // the head belongs to the kernel
	sending    bool // a goroutine sends the file at the head
	finished   []finishedLoan
}

// finishedLoan is a call of done that is due for lent memory.
type finishedLoan struct {
	done  func(error)
	err   error
	large bool
}

// lend appends the caller's memory without a copy.
func (q *outQueue) lend(p []byte, done func(error), large bool) {
	if len(p) == 0 {
		q.finished = append(q.finished, finishedLoan{done, nil, large})
		return
	}
	q.n += len(p)
	q.append(&chunk{b: p[:len(p):len(p)], done: done, large: large})
}

// lendFile appends a part of a file.
func (q *outQueue) lendFile(r fileRange, done func(error)) {
	if r.left == 0 {
		q.finished = append(q.finished, finishedLoan{done, nil, false})
		return
	}
	q.n += r.left
	q.append(&chunk{done: done, file: &r})
}

// fail finishes all loans with an error. The head must not be in use by the kernel.
func (q *outQueue) fail(err error) {
	for ch := q.head; ch != nil; ch = ch.next {
		if ch.done != nil {
			q.finished = append(q.finished, finishedLoan{ch.done, err, ch.large})
			ch.done = func(error) {}
		}
	}
}

// add copies p to the end.
func (q *outQueue) add(p []byte) {
	q.n += len(p)
	for len(p) > 0 {
		t := q.tail
		if t == nil || t == q.head && q.busy || len(t.b) == cap(t.b) {
			t = q.grow(len(p))
		}
		k := min(len(p), cap(t.b)-len(t.b))
		t.b = append(t.b, p[:k]...)
		p = p[k:]
	}
}

// grow appends a chunk for n more bytes, larger than the one before it.
func (q *outQueue) grow(n int) *chunk {
	class := classFor(n)
	if q.tail != nil {
		class = max(class, min(q.tail.class+1, grownClass))
	}
	ch := newChunk(class)
	q.append(ch)
	return ch
}

func (q *outQueue) append(ch *chunk) {
	if q.tail == nil {
		q.head, q.tail = ch, ch
		return
	}
	q.tail.next = ch
	q.tail = ch
}

// front returns the next bytes to send, nil if there are none or if a file is next.
func (q *outQueue) front() []byte {
	if q.head == nil {
		return nil
	}
	return q.head.b[q.off:]
}

// advance drops n bytes that the kernel has taken from the front.
func (q *outQueue) advance(n int) {
	q.n -= n
	ch := q.head
	if ch.file != nil {
		*ch.file = ch.file.from(n)
	} else {
		q.off += n
	}
	if ch.file != nil && ch.file.left == 0 || ch.file == nil && q.off == len(ch.b) {
		q.head, q.off = ch.next, 0
		if q.head == nil {
			q.tail = nil
		}
		if ch.done != nil {
			q.finished = append(q.finished, finishedLoan{ch.done, nil, ch.large})
		}
		ch.free()
	}
}

// drop empties the queue. The head must not be in use by the kernel.
func (q *outQueue) drop() {
	for ch := q.head; ch != nil; {
		next := ch.next
		ch.free()
		ch = next
	}
	*q = outQueue{}
}

// backendState is the backend's state of a connection.
type backendState struct {
	// Used by the backends with loops. fd and wakeAt are guarded by the connection's mutex,
	// the rest belongs to the loop.
	fd          int
	wakeAt      time.Time // the alarm of the timer, zero for none
	slot        uint32
	gen         uint32
	tid         int32        // the thread that armed the receive
	turnLeft    int32        // bytes that OnData may still get in turn
	drainLeft   int32        // Shutdown: how much more is read at most, 0 before the first piece
	timerAt     int32        // index in the heap of timers + 1, 0 if it is not there
	turn        uint32       // the loop's turn that turnLeft is for
	kept        *keptInput   // nil if nothing is kept
	watched     watch.Events // epoll: what the descriptor is registered for, 0 for not at all
	armed       bool         // a receive is in flight
	canceling   bool         // its cancellation was submitted
	ending      bool         // a cancellation of everything was submitted
	marked      bool         // the loop will process the connection
	drained     bool         // Shutdown: all that had arrived was delivered
	oneShot     bool         // the receive ends after one completion
	polling     bool         // a poll is armed instead of a receive
	nonEmpty    bool         // the socket held more bytes after the last receive
	endArmed    bool         // a poll for the end of the stream is in flight
	hungUp      bool         // that poll has found the end
	lingers     bool         // closing the socket may wait for the peer
	bulk        bool         // the peer sends much
	mayHaveMore bool         // plain calls may receive more
	discard     bool         // Shutdown: later data are dropped
	sendTimeout bool         // SO_SNDTIMEO is set
	wasFull     bool         // the last receive filled its buffer
	fullInRow   uint8        // receives in a row that filled their buffers, up to bulkFrom

	net *netConn // used by the net backend
}

// covers reports whether the alarm is not later than at. The caller holds the
// connection's mutex.
func (k *backendState) covers(at time.Time) bool { return !k.wakeAt.IsZero() && !at.Before(k.wakeAt) }

// keptInput holds data that was received and cannot be delivered while reading is
// stopped. Its queue is not empty.
type keptInput struct {
	queue outQueue
	ended bool // the end of receiving, with res, follows the queue
	res   int32
}
