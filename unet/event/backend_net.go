// SPDX-License-Identifier: MIT

package event

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/sys"
)

// goroutines is the engine of a server without event loops: package net, with one
// goroutine that reads from each connection and one that writes while something
// is pending.
type goroutines struct {
	tally
	server  *Server
	ln      net.Listener
	leaving atomic.Bool
	stop    chan struct{} // closed by the first shutdown
	once    sync.Once
	bufs    sync.Pool // of *[]byte
	bulk    sync.Pool // of larger ones, for a connection that has filled a buffer

	mu      sync.Mutex
	conns   map[*Conn]struct{}
	packets []*netSocket
	count   counters
}

// startNet starts a server on package net.
func (s *Server) startNet(address string) error {
	lc := s.opts.ListenConfig
	if lc == nil {
		lc = &net.ListenConfig{}
	}
	ln := s.given
	if ln == nil && s.network != "" {
		err := bind(func() (err error) {
			ln, err = lc.Listen(context.Background(), s.network, address)
			return err
		})
		if err != nil {
			return err
		}
	}
	g := &goroutines{server: s, ln: ln, stop: make(chan struct{}), conns: map[*Conn]struct{}{}}
	g.bufs.New = func() any { b := make([]byte, s.opts.BufferSize); return &b }
	g.bulk.New = func() any {
		b := make([]byte, min(s.opts.largest, max(s.opts.WriteLimit, s.opts.BufferSize)))
		return &b
	}
	s.engine = g
	if ln != nil {
		s.addr = ln.Addr()
		g.wg.Go(g.accept)
	} else {
		g.wg.Go(func() { <-g.stop })
	}
	g.closeWhenDone(func() {})
	return nil
}

// accept takes connections until the listener is closed or, in a shutdown, has
// no more.
func (g *goroutines) accept() {
	defer g.ln.Close()
	pause := time.Duration(0)
	most := 0 // bounds the accepts of a shutdown, as clients may keep connecting
	for last := mostEmptyReads; ; {
		if g.leaving.Load() {
			if most == 0 {
				most = maxBacklog() + 1
			}
			if most--; most == 0 || g.server.aborting.Load() {
				return
			}
			g.setAcceptDeadline()
		}
		nc, err := g.ln.Accept()
		if err == nil {
			pause = 0
			g.attach(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if g.leaving.Load() {
			if last--; last == 0 {
				return
			}
			continue
		}
		if exhausted(err) {
			g.count.acceptRetries.Add(1)
		}
		pause = min(max(2*pause, firstPause), maxPause)
		select {
		case <-g.stop:
		case <-time.After(pause):
		}
	}
}

const (
	// retryPause is the time before a submission that failed for lack of memory, or a
	// cancellation, is repeated.
	retryPause = time.Millisecond
	firstPause = 5 * time.Millisecond
	maxPause   = time.Second
	// drainTime is how long a read of a shutdown waits for data that have arrived, and
	// mostEmptyReads how many of these reads must find none: a deadline may pass before
	// a read has checked the socket.
	drainTime      = 3 * time.Millisecond
	mostEmptyReads = 3
	// maxDrain bounds how much a shutdown reads from a peer that does not stop sending.
	maxDrain = 8 << 20
)

// setAcceptDeadline bounds the wait for the next connection, in a shutdown.
func (g *goroutines) setAcceptDeadline() {
	if d, ok := g.ln.(interface{ SetDeadline(time.Time) error }); ok {
		_ = d.SetDeadline(time.Now().Add(drainTime))
	}
}

func exhausted(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE)
}

// netConn is what the net backend keeps of a connection.
type netConn struct {
	conn      net.Conn
	raw       net.Conn      // below conn, with TLS
	callbacks *sync.Mutex   // held during callbacks
	wake      chan struct{} // makes the reader check the state
	timer     *time.Timer
	result    chan error  // of the TLS handshake, for Enroll
	opened    bool        // OnOpen was called
	exited    atomic.Bool // a callback has called runtime.Goexit

	// Of a shutdown.
	drainBy                  time.Time // nothing more has arrived by then
	drainedBytes, emptyReads int
}

func (g *goroutines) newConn(nc net.Conn, o ConnOptions) *Conn {
	c := g.server.newConn(g, nc.LocalAddr().Network(), o)
	n := &netConn{conn: nc, raw: nc, wake: make(chan struct{}, 1), callbacks: new(sync.Mutex)}
	if o.Beside != nil {
		n.callbacks = o.Beside.bstate.net.callbacks
	}
	if o.TLS != nil {
		n.result = make(chan error, 1)
		n.conn = tls.Client(nc, o.TLS)
	}
	c.bstate.net = n
	return c
}

// handshake does the TLS handshake, if the connection has TLS. It reports whether the
// handshake failed; the connection is closed then.
func (g *goroutines) handshake(c *Conn) (failed bool) {
	t, ok := c.bstate.net.conn.(*tls.Conn)
	if !ok {
		return false
	}
	c.mu.Lock()
	err := c.reason() // a function of the configuration may have ended the goroutine
	c.mu.Unlock()
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), handshakeTime)
		defer cancel()
		if !c.runApart(c.bstate.net.callbacks, func() { err = t.HandshakeContext(ctx) }) {
			c.mu.Lock()
			err = c.reason()
			c.mu.Unlock()
		}
	}
	if err == nil {
		c.handshakeEnded(nil)
		return false
	}
	c.call(func() {
		defer g.free(c)
		c.mu.Lock()
		c.state.closed = true
		c.mu.Unlock()
		c.handshakeFailed(err)
	})
	return true
}

// enroll implements engine.
func (g *goroutines) enroll(nc net.Conn, o ConnOptions) (*Conn, error) {
	c := g.newConn(nc, o)
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.leaving.Load() {
		return nil, net.ErrClosed
	}
	g.conns[c] = struct{}{}
	g.count.enrolled.Add(1)
	g.count.open.Add(1)
	g.wg.Go(func() { g.serve(c) })
	return c, nil
}

// attach starts the goroutine of an accepted connection.
func (g *goroutines) attach(nc net.Conn) {
	c := g.newConn(nc, ConnOptions{})
	if config := g.server.opts.TLS; config != nil {
		c.bstate.net.conn = tls.Server(nc, config)
	}
	g.mu.Lock()
	g.conns[c] = struct{}{}
	g.mu.Unlock()
	if g.server.aborting.Load() { // abort may have missed it
		g.mu.Lock()
		delete(g.conns, c)
		g.mu.Unlock()
		_ = nc.Close()
		return
	}
	g.count.accepted.Add(1)
	g.count.open.Add(1)
	g.wg.Go(func() { g.serve(c) })
}

// exited implements backend.
func (g *goroutines) exited(c *Conn) { c.bstate.net.exited.Store(true) }

// idle implements backend. Only the writer goroutine sends.
func (g *goroutines) idle() bool { return false }

// sendNow implements backend. It is not called.
func (g *goroutines) sendNow(*Conn, []byte) int { return 0 }

// do implements backend.
func (g *goroutines) do(c *Conn, f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.state.closed {
		g.wg.Go(func() { c.callOpen(func() { c.run(f) }) })
	}
}

// call runs a callback.
func (c *Conn) call(f func()) {
	c.bstate.net.callbacks.Lock()
	defer c.bstate.net.callbacks.Unlock()
	f()
}

// callOpen runs a callback unless OnClose was called.
func (c *Conn) callOpen(f func()) {
	c.call(func() {
		if !c.isClosed() {
			f()
		}
	})
}

// addrs implements backend.
func (g *goroutines) addrs(c *Conn) *addrs {
	return &addrs{c.bstate.net.conn.LocalAddr(), c.bstate.net.conn.RemoteAddr()}
}

// notify implements backend. It does not block: callbacks call it.
func (g *goroutines) notify(c *Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s, nc := &c.state, c.bstate.net.conn
	s.notified = false
	if s.closed {
		return
	}
	if s.timer {
		g.schedule(c)
	}
	switch {
	case s.aborted:
		_ = nc.SetDeadline(past) // A read or write in progress ends.
	case c.out.busy:
	case c.out.n > 0 || len(c.out.finished) > 0:
		c.out.busy = true
		g.wg.Go(func() { g.write(c) })
	default:
		flushed(c)
	}
	c.bstate.signal()
}

// signal makes the reader check the state.
func (k *backendState) signal() {
	select {
	case k.net.wake <- struct{}{}:
	default:
	}
}

// flushed acts on CloseWrite and Close after the pending bytes are sent. The caller holds
// the connection's mutex.
func flushed(c *Conn) {
	s, nc := &c.state, c.bstate.net.conn
	if s.finWrite && !s.finSent {
		s.finSent = true
		if w, ok := nc.(interface{ CloseWrite() error }); ok {
			_ = w.CloseWrite() // The reader gets the error.
		}
	}
	if s.closing {
		_ = nc.SetReadDeadline(past)
	}
}

// write sends the pending bytes.
func (g *goroutines) write(c *Conn) {
	locked := true
	defer func() {
		if !locked { // a callback has called runtime.Goexit
			c.mu.Lock()
		}
		c.out.busy = false
		flushed(c)
		c.bstate.signal()
		c.mu.Unlock()
	}()
	c.mu.Lock()
	for (c.out.n > 0 || len(c.out.finished) > 0) && !c.state.aborted {
		if p := c.out.front(); p != nil {
			n, err := 0, error(nil)
			c.mu.Unlock()
			locked = false
			c.runApart(c.bstate.net.callbacks, func() { n, err = c.bstate.net.conn.Write(p) })
			c.mu.Lock()
			locked = true
			c.out.advance(n)
			if err != nil {
				c.fail(c.endError("write", err))
			}
		} else if c.out.n > 0 {
			r := *c.out.head.file
			n, err := int64(0), error(nil)
			c.mu.Unlock()
			locked = false
			c.runApart(c.bstate.net.callbacks, func() {
				n, err = io.Copy(c.bstate.net.conn, io.NewSectionReader(r.f, r.off, int64(min(r.left, filePiece))))
			})
			if n == 0 && err == nil {
				err = c.opError("write", io.ErrUnexpectedEOF)
			}
			c.mu.Lock()
			locked = true
			c.out.advance(int(n))
			if err != nil {
				c.fail(c.endError("write", err))
				_ = c.bstate.net.conn.SetDeadline(past) // A read in progress ends.
			}
		}
		if c.state.full && c.wantsInput() {
			c.bstate.signal() // the next write may wait for the peer
		}
		writable := c.takeWritable()
		if !writable && len(c.out.finished) == 0 {
			continue
		}
		c.mu.Unlock()
		locked = false
		c.call(c.callFinished)
		if writable {
			c.call(c.onWritable)
		}
		c.mu.Lock()
		locked = true
	}
}

// The results of next.
const (
	waits = iota
	reads
	ends
)

// next returns what the reader does next.
func (c *Conn) next() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := &c.state
	switch {
	case c.out.busy && s.aborted:
		return waits // until the writer has returned
	case s.aborted, s.closing && c.out.n == 0 && !c.out.busy:
		return ends
	case c.wantsInput():
		return reads
	}
	return waits
}

// serve is a connection's reader. When a callback ends it by runtime.Goexit, another
// goroutine replaces it.
func (g *goroutines) serve(c *Conn) {
	g.server.label(1)
	defer func() {
		if c.bstate.net.exited.Load() && !c.isClosed() {
			g.wg.Go(func() { g.serve(c) })
		}
	}()
	if !c.bstate.net.opened {
		if g.handshake(c) {
			return
		}
		c.bstate.net.opened = true
		c.call(c.onOpen)
	}
	for {
		if g.leaving.Load() {
			g.shutdownConn(c)
		}
		switch c.next() {
		case reads:
			g.read(c)
			continue
		case ends:
			g.finish(c)
			return
		}
		<-c.bstate.net.wake
	}
}

// read reads once and passes the data to the handler.
func (g *goroutines) read(c *Conn) {
	bufs := &g.bufs
	if c.bstate.bulk {
		bufs = &g.bulk
	}
	p := bufs.Get().(*[]byte)
	defer bufs.Put(p)
	n, err := 0, error(nil)
	if !c.runApart(c.bstate.net.callbacks, func() { n, err = c.bstate.net.conn.Read(*p) }) {
		return
	}
	c.bstate.bulk = n >= g.server.opts.BufferSize
	if n > 0 {
		g.deliver(c, (*p)[:n])
		sys.Poison((*p)[:n])
		if k := &c.bstate; !k.net.drainBy.IsZero() && !k.drained {
			if k.net.drainedBytes += n; k.net.drainedBytes > maxDrain {
				g.drained(c)
			}
		}
	}
	if err != nil {
		g.readFailed(c, err)
	}
}

// deliver calls OnData as soon as reading is not stopped.
func (g *goroutines) deliver(c *Conn, data []byte) {
	for {
		done := false
		c.call(func() { // callbacks change the state, so check it in one
			c.mu.Lock()
			s := &c.state
			gone := s.closing || s.aborted || c.bstate.discard
			want := c.wantsInput()
			c.mu.Unlock()
			if done = gone || want; want && !gone {
				c.onData(data)
			}
		})
		if done {
			return
		}
		<-c.bstate.net.wake
	}
}

// readFailed handles an error of a read: a timeout, the end of the stream, or a failure.
func (g *goroutines) readFailed(c *Conn, err error) {
	k := &c.bstate
	switch {
	case errors.Is(err, errTimeout):
		// The deadline may be one that was set before the reader noticed the shutdown.
		if !k.net.drainBy.IsZero() && !k.drained && !time.Now().Before(k.net.drainBy) {
			if k.net.emptyReads++; k.net.emptyReads == mostEmptyReads {
				g.drained(c)
			}
		}
	case errors.Is(err, errEOF):
		c.call(func() { c.ended(k.discard) })
		g.notify(c)
	default:
		c.mu.Lock()
		c.fail(c.endError("read", err))
		c.mu.Unlock()
		g.notify(c)
	}
}

// shutdownConn sets the deadline for the next read of a shutdown. The reader calls it in
// each iteration until the data that had arrived are read.
func (g *goroutines) shutdownConn(c *Conn) {
	k := &c.bstate
	if k.drained {
		return
	}
	c.mu.Lock()
	s := c.state
	c.mu.Unlock()
	switch {
	case s.closing || s.aborted:
	case s.eof: // OnEOF has left it to the handler to close the connection
		k.drained = true
		if c.handler.OnShutdown != nil {
			g.requestClose(c)
		}
	default:
		k.net.drainBy = time.Now().Add(drainTime)
		_ = k.net.conn.SetReadDeadline(k.net.drainBy)
	}
}

// drained ends the reads of a shutdown: the handler has the data that had arrived.
func (g *goroutines) drained(c *Conn) {
	c.bstate.drained = true
	_ = c.bstate.net.conn.SetReadDeadline(time.Time{})
	g.requestClose(c)
}

// requestClose asks the handler to end a connection, or begins its end.
func (g *goroutines) requestClose(c *Conn) {
	asked := false
	c.call(func() { asked = c.onShutdown() })
	if asked {
		return
	}
	c.mu.Lock()
	c.state.finWrite = true
	c.bstate.discard = true
	c.mu.Unlock()
	g.notify(c)
}

// lingering is implemented by the TCP connections of package net and of package unet.
type lingering interface {
	net.Conn
	SetLinger(seconds int) error
}

// finish closes a connection.
func (g *goroutines) finish(c *Conn) {
	c.call(c.failLent)
	c.mu.Lock()
	c.expiry = time.Time{}
	err := c.reason()
	c.mu.Unlock()
	if t, ok := c.bstate.net.raw.(lingering); ok && resets(err) {
		_ = t.SetLinger(0)
		_ = t.Close()
	}
	defer g.free(c)
	c.call(func() {
		c.mu.Lock()
		c.state.closed = true
		c.mu.Unlock()
		c.onClose(err)
	})
}

// free frees the resources of a connection after OnClose.
func (g *goroutines) free(c *Conn) {
	k := &c.bstate
	c.mu.Lock()
	c.out.drop()
	if k.net.timer != nil {
		k.net.timer.Stop()
	}
	c.mu.Unlock()
	_ = k.net.conn.Close()
	g.mu.Lock()
	delete(g.conns, c)
	g.mu.Unlock()
	g.count.open.Add(-1)
}

// schedule sets the timer. The caller holds the connection's mutex.
func (g *goroutines) schedule(c *Conn) {
	k := &c.bstate
	c.state.timer = false
	if c.expiry.IsZero() || k.covers(c.expiry) {
		return
	}
	k.wakeAt = c.expiry
	if k.net.timer != nil {
		k.net.timer.Stop()
	}
	at := k.wakeAt
	k.net.timer = time.AfterFunc(time.Until(at), func() { g.fire(c, at) })
}

// fire handles an alarm: the timer may have been stopped, or moved.
func (g *goroutines) fire(c *Conn, at time.Time) {
	c.mu.Lock()
	due := c.takeAlarm(at, time.Now())
	if !due && !c.state.closed {
		g.schedule(c)
	}
	c.mu.Unlock()
	if due {
		c.callOpen(c.onTimer)
	}
}

// shutdown ends accepting and waiting reads: connections deliver what has arrived, then end.
func (g *goroutines) shutdown() {
	g.once.Do(func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.leaving.Store(true)
		close(g.stop)
		g.setAcceptDeadline() // for the Accept in progress
		for c := range g.conns {
			_ = c.bstate.net.conn.SetReadDeadline(past)
			c.bstate.signal()
		}
		for _, s := range g.packets {
			s.leave()
		}
	})
}

// abort closes everything, without waiting for data.
func (g *goroutines) abort() {
	g.shutdown()
	g.mu.Lock()
	conns := make([]*Conn, 0, len(g.conns))
	for c := range g.conns {
		conns = append(conns, c)
	}
	for _, s := range g.packets {
		s.close()
	}
	g.mu.Unlock()
	for _, c := range conns {
		c.Abort()
	}
}

func (g *goroutines) stats() Stats {
	return g.count.stats()
}
