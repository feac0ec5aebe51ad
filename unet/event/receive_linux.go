// SPDX-License-Identifier: MIT

package event

import (
	"math"
	"os"
	"syscall"

	"github.com/ringside-io/ringside/internal/sys"
)

const (
	// pieces is how many plain receives a connection gets, and acceptBatch how many
	// connections are accepted, before other connections have their turn.
	pieces      = 2
	acceptBatch = 64
	// rawBytes is how many bytes the kernel may copy during one call. sendTurn is how
	// many it may copy for one connection before other connections have their turn.
	rawBytes = 512 << 10
	sendTurn = 1 << 20
	// firstPiece is how much is received before a handler with ReceiveInto is asked for
	// memory: a whole body of 64 KiB, and little to copy of a longer one.
	firstPiece = 128 << 10
)

// memory returns a buffer for receiving outside of a ring.
func (l *loop) memory() []byte {
	if l.scratch == nil {
		l.scratch = make([]byte, l.server.opts.largest)
	}
	return l.scratch
}

// memoryFor returns a buffer for receiving from a connection. While responses are pending,
// the buffer is no longer than WriteLimit: the handler may write as many bytes in response
// to each piece.
func (l *loop) memoryFor(c *Conn) []byte {
	p, o := l.memory(), &l.server.opts
	if c.handler.ReceiveInto != nil {
		p = p[:min(len(p), firstPiece)] // the handler has memory for more
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out.n > 0 {
		p = p[:min(len(p), max(o.WriteLimit, o.BufferSize))]
	}
	return p
}

// receiveNow receives by plain calls and passes the data to the handler. It returns how
// much it received, and whether there may be more.
func (l *loop) receiveNow(c *Conn) (total int, more bool) {
	if s := c.secure; s != nil && s.opened && !s.ended && len(s.in) == 0 {
		return l.receiveSecure(c)
	}
	memory := l.memoryFor(c)
	for range pieces {
		left := l.allowance(c)
		if left == 0 {
			return total, true
		}
		p := c.receiveInto(min(left, bulkPiece))
		lent := len(p) > 0
		if !lent {
			p = memory[:min(len(memory), left)]
		}
		n, errno := sys.SockRecv(c.bstate.fd, p, sys.MsgDontWait)
		switch {
		case errno == syscall.EINTR:
			continue
		case errno == syscall.EAGAIN:
			return total, false
		case errno != 0:
			l.receiveEnded(c, -int32(errno))
			return total, false
		case n == 0:
			l.receiveEnded(c, 0)
			return total, false
		}
		total += n
		l.deliver(c, p[:n])
		if !lent {
			sys.Poison(p[:n])
		}
		if n < len(p) || c.bstate.kept != nil {
			return total, false
		}
	}
	return total, true
}

// receiveSecure is receiveNow for a connection with TLS after its handshake: crypto/tls
// receives into its own memory.
func (l *loop) receiveSecure(c *Conn) (total int, more bool) {
	in := tlsInput{loop: l}
	c.secure.source = &in
	defer c.secure.received() // OnData may end the goroutine
	c.secure.pump()
	c.secure.received()
	if in.ended {
		l.receiveEnded(c, in.res)
	}
	l.markDirty(c)
	return in.total, !in.ended && !in.drained
}

// received ends the use of the source. Nothing waits for another record any more.
func (s *secure) received() {
	s.source = nil
	s.c.mu.Lock()
	s.more = false
	s.sendGathered()
	s.c.mu.Unlock()
}

// tlsInput is the source of a connection's TLS during receiveSecure.
type tlsInput struct {
	*loop
	total   int
	drained bool  // the socket has no more
	ended   bool  // receiving has ended, with res
	res     int32 // as of receiveEnded
}

// more implements source. A few bytes are the overhead of the records that were passed.
func (in *tlsInput) more(passed int) bool {
	return !in.drained || in.total-passed >= recordBytes/4
}

// receiveTLS implements source.
func (in *tlsInput) receiveTLS(c *Conn, p []byte) (int, error) {
	p = p[:min(len(p), in.allowance(c))]
	for len(p) > 0 && !in.drained && !in.ended {
		n, errno := sys.SockRecv(c.bstate.fd, p, sys.MsgDontWait)
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			in.drained = true
		case errno != 0 || n == 0:
			in.ended, in.res = true, -int32(errno)
		default:
			in.drained = n < len(p)
			in.total += n
			c.bstate.turnLeft -= int32(n)
			return n, nil
		}
	}
	return 0, errWouldBlock
}

// allowance returns how many bytes OnData may still get of a connection in this turn.
func (l *loop) allowance(c *Conn) int {
	k := &c.bstate
	if k.turn != l.turns {
		k.turn, k.turnLeft = l.turns, int32(min(l.server.opts.TurnBytes, math.MaxInt32))
	}
	return max(int(k.turnLeft), 0)
}

// deliver passes data to the handler, or keeps it while reading is stopped.
func (l *loop) deliver(c *Conn, data []byte) {
	k := &c.bstate
	c.mu.Lock()
	want := c.wantsInput()
	gone := c.state.closing || c.state.aborted || k.discard
	now := want && !gone && k.kept == nil && l.allowance(c) > 0
	if now {
		c.state.notified = true // the loop processes it in any case: a Write need not notify it
	}
	c.mu.Unlock()
	switch {
	case gone:
	case now:
		k.turnLeft -= int32(len(data))
		c.onData(data)
		l.markDirty(c)
	default:
		if k.kept == nil {
			k.kept = new(keptInput)
		}
		k.kept.queue.add(data)
		l.markDirty(c)
	}
}

// release passes kept data to the handler, and then data that plain calls receive.
func (l *loop) release(c *Conn) {
	k := &c.bstate
	for k.kept != nil && k.kept.queue.n > 0 {
		h := k.kept
		c.mu.Lock()
		want := c.wantsInput()
		c.mu.Unlock()
		left := l.allowance(c)
		if !want || left <= 0 {
			break
		}
		p := h.queue.front()
		p = p[:min(len(p), l.server.opts.largest, left)]
		k.turnLeft -= int32(len(p))
		c.onData(p)
		h.queue.advance(len(p))
	}
	h := k.kept
	if h != nil && h.queue.n == 0 {
		k.kept = nil
	}
	switch {
	case k.kept != nil:
	case h != nil && h.ended:
		l.receiveEnded(c, h.res)
	case k.mayHaveMore:
		k.mayHaveMore = false // OnData may end the goroutine: then input starts a receive
		_, k.mayHaveMore = l.receiveNow(c)
	}
	l.markDirty(c)
}

// receiveEnded handles the end of receiving: end of stream, or an error.
func (l *loop) receiveEnded(c *Conn, res int32) {
	if res == 0 {
		c.ended(c.bstate.discard)
	} else {
		c.mu.Lock()
		c.fail(c.opError("read", os.NewSyscallError("recv", syscall.Errno(-res))))
		c.mu.Unlock()
	}
	l.markDirty(c)
}

// drain passes the data that has arrived on an ending connection to the handler, and then
// requests its end. It stops while reading is paused, and is called again when that may
// have changed.
func (l *loop) drain(c *Conn) {
	k := &c.bstate
	p := l.memory()
	if k.drainLeft == 0 {
		k.drainLeft = maxDrain
	}
	for n := 0; k.kept == nil; n++ {
		if n == pieces {
			l.markDirty(c) // give the others their turn
			return
		}
		c.mu.Lock()
		want, s, fd := c.wantsInput(), c.state, k.fd
		c.mu.Unlock()
		switch {
		case s.closing || s.aborted:
			k.drained = true
			return
		case s.eof && c.secure != nil && c.secure.waiting:
			return // decrypted data have not been passed to OnData
		case s.eof:
			k.drained = true
			l.requestCloseAfterEOF(c)
			return
		}
		if !want {
			return
		}
		n, errno := 0, syscall.EAGAIN
		if k.drainLeft > 0 {
			n, errno = sys.SockRecv(fd, p, sys.MsgDontWait)
		}
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN:
			k.drained = true
			l.requestClose(c)
			return
		case errno != 0:
			l.receiveEnded(c, -int32(errno))
		case n == 0:
			l.receiveEnded(c, 0)
		default:
			if k.drainLeft -= int32(n); k.drainLeft == 0 {
				k.drainLeft = -1
			}
			c.onData(p[:n])
		}
	}
}

// requestCloseAfterEOF is requestClose for a connection whose peer has ended its direction.
// OnEOF has left it to the handler to close it, so there is no default.
func (l *loop) requestCloseAfterEOF(c *Conn) {
	if c.handler.OnShutdown != nil {
		l.requestClose(c)
	}
}

// requestClose asks the handler to end a connection, or closes it.
func (l *loop) requestClose(c *Conn) {
	if !c.onShutdown() {
		c.mu.Lock()
		c.state.finWrite = true
		c.bstate.discard = true
		c.mu.Unlock()
	}
	l.markDirty(c)
}
