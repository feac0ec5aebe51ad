// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
	"net"
)

// Handler holds the functions that a server calls for a connection. Each may be nil. The
// calls for one connection never overlap. Calls for different connections may run
// concurrently. A function that blocks delays every connection of its loop: longer work
// belongs in a goroutine, which may use the connection's methods.
type Handler struct {
	// OnOpen is the first call for a new connection.
	OnOpen func(c *Conn)
	// OnHandshakeError is called instead of OnOpen when the TLS handshake has
	// failed. No other function is called for the connection.
	OnHandshakeError func(c *Conn, err error)
	// OnData receives the peer's data, in order. The sizes of the pieces depend on the
	// network, not on the peer's writes. The slice is valid until the function returns:
	// copy data that is needed longer.
	OnData func(c *Conn, data []byte)
	// ReceiveInto, if it is set, may be called before data is received. It may return memory
	// for the data, so that OnData need not copy it: if OnData's slice begins where that
	// memory begins, the data is there to stay. Otherwise the slice is the loop's, as always.
	// The memory is used before ReceiveInto or OnData is called again for the connection, and
	// not afterwards. It is called for peers that send much at once, not with TLS, nor with
	// ModeNet. nil, or no bytes, is no memory.
	ReceiveInto func(c *Conn) []byte
	// OnEOF is called when the peer has ended its direction (TCP FIN). The handler may
	// continue to write, and must call [Conn.Close] in the end. Without OnEOF the server
	// sends the pending bytes and closes the connection.
	OnEOF func(c *Conn)
	// OnWritable is called after [Conn.Write] has returned [ErrFull] or [Conn.Full] has
	// returned true, when at most half of [Options].WriteLimit is pending.
	OnWritable func(c *Conn)
	// OnTimer is called when the timer of [Conn.SetTimer] fires.
	OnTimer func(c *Conn)
	// OnShutdown is called once after [Server.Shutdown], when all data that had arrived
	// by then has been passed to OnData. The handler finishes its work and calls
	// [Conn.Close]. Without OnShutdown the server sends the pending bytes and ends its
	// direction. It closes the connection when the peer has ended its direction. If the peer
	// has done so before and OnEOF has left the connection open, only OnShutdown is called.
	OnShutdown func(c *Conn)
	// OnClose is the last call for a connection. The error is nil after [Conn.Close],
	// io.EOF if the peer ended the connection, and net.ErrClosed after [Conn.Abort] and
	// [Server.Close]. If a function of the handler has panicked or ended its goroutine,
	// it is a *[HandlerError]. Otherwise it is the error of the connection, in a
	// *net.OpError.
	OnClose func(c *Conn, err error)
	// OnPanic, if it is set, is called with the panic's value when a function of the
	// handler, one passed to [Conn.Post], or one of the tls.Config panics. Only that connection
	// ends, with a reset. Without OnPanic a panic ends the process, as in any goroutine. A panic
	// in OnPanic itself ends the process. If a function of the tls.Config panics after the
	// connection has ended, OnPanic is called after OnHandshakeError.
	OnPanic func(c *Conn, value any)
}

// HandlerError is the error of a connection that was reset because a function of the
// handler did not return: it panicked while [Handler].OnPanic was set, or called
// runtime.Goexit.
type HandlerError struct {
	Value any // value of the panic, nil after runtime.Goexit
}

// Error implements error.
func (e *HandlerError) Error() string {
	if e.Value == nil {
		return "event: a function of the handler called runtime.Goexit"
	}
	return fmt.Sprintf("event: a function of the handler panicked: %v", e.Value)
}

// ErrFull is returned by [Conn.Write] if [Options].WriteLimit bytes, or more, are
// pending. Write has then accepted nothing. OnWritable is called when a Write can succeed
// again.
var ErrFull = errors.New("event: too many bytes are pending on the connection")

// onOpen and the methods below call the functions of the handler. With TLS, secure comes
// between.
func (c *Conn) onOpen() {
	if c.secure != nil {
		c.secure.start()
		return
	}
	c.callOnOpen()
}

func (c *Conn) onData(p []byte) {
	if c.secure != nil {
		c.secure.data(p)
		return
	}
	c.callOnData(p)
}

// receiveInto returns the handler's memory for the next data, at most max bytes, nil if it
// has none.
func (c *Conn) receiveInto(max int) (p []byte) {
	if f := c.handler.ReceiveInto; f != nil && c.secure == nil {
		c.run(func() { p = f(c) })
	}
	return p[:min(len(p), max)]
}

func (c *Conn) onWritable() {
	if f := c.handler.OnWritable; f != nil {
		c.run(func() { f(c) })
	}
}

func (c *Conn) onTimer() {
	if f := c.handler.OnTimer; f != nil {
		c.run(func() { f(c) })
	}
}

// onEOF reports whether the handler continues to use the connection.
func (c *Conn) onEOF() bool {
	if c.secure != nil {
		return c.secure.end()
	}
	return c.callOnEOF()
}

// ended handles the end of the peer's stream. With discard OnEOF is not called. The loop
// or goroutine of the connection calls it.
func (c *Conn) ended(discard bool) {
	c.mu.Lock()
	seen := c.state.eof
	c.state.eof = true
	discard = discard || c.state.closing || c.state.aborted
	c.mu.Unlock()
	if seen || !discard && c.onEOF() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.closing {
		return
	}
	c.state.closing = true
	if !discard && c.err == nil {
		c.err = errEOF
	}
}

// onShutdown reports whether the handler ends the connection itself.
func (c *Conn) onShutdown() bool {
	if c.secure != nil && !c.secure.opened {
		c.secure.fail(net.ErrClosed)
		return true
	}
	f := c.handler.OnShutdown
	if f != nil {
		c.run(func() { f(c) })
	}
	return f != nil
}

func (c *Conn) onClose(err error) {
	if c.secure != nil {
		c.secure.fail(net.ErrClosed)
		if !c.secure.opened {
			c.secure.calls.Lock()
			defer c.secure.calls.Unlock()
			c.handshakeFailed(err)
			return
		}
	}
	if f := c.handler.OnClose; f != nil {
		c.run(func() { f(c, err) })
	}
}
