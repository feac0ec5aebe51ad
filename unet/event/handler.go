// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
)

// Handler holds the functions that a server calls. Each may be nil. The calls for one
// connection never overlap; those for different connections may run concurrently. A
// function that blocks delays every connection of its loop: longer work belongs in a
// goroutine, which may use the connection's methods.
type Handler struct {
	// OnOpen is the first call for a new connection.
	OnOpen func(c *Conn)
	// OnHandshakeError is called instead of OnOpen when the TLS handshake has
	// failed. No other function is called for the connection.
	OnHandshakeError func(c *Conn, err error)
	// OnData receives the peer's data, in order. The sizes of the pieces depend on
	// the network, not on the peer's writes. The slice is valid until the function
	// returns: copy data that are needed longer.
	OnData func(c *Conn, data []byte)
	// OnEOF is called when the peer has ended its direction (TCP FIN). The handler may
	// continue to write, and must call [Conn.Close] at the end. Without OnEOF the server
	// sends the pending bytes and closes the connection.
	OnEOF func(c *Conn)
	// OnWritable is called after [Conn.Write] returned [ErrFull], or [Conn.Full] true,
	// when at most half of [Options].WriteLimit is pending.
	OnWritable func(c *Conn)
	// OnTimer is called when the timer of [Conn.SetTimer] fires.
	OnTimer func(c *Conn)
	// OnShutdown is called once after [Server.Shutdown], when all data that had arrived
	// by then have been passed to OnData. The handler finishes its work and calls [Conn.Close].
	// Without OnShutdown the server sends the pending bytes, ends its direction, and
	// closes the connection when the peer has ended its own.
	OnShutdown func(c *Conn)
	// OnClose is the last call for a connection. The error is nil after
	// [Conn.Close], io.EOF when the peer ended the connection, net.ErrClosed
	// after [Conn.Abort] and [Server.Close], a *[HandlerError] when a function of
	// the handler has panicked or ended its goroutine, otherwise the error of the
	// connection, in a *net.OpError.
	OnClose func(c *Conn, err error)
	// OnPanic, if it is set, is called with the panic's value when a function of
	// the handler, or one given to [Conn.Post], panics. Only that connection
	// ends, with a reset. Without OnPanic a panic ends the process, as in any
	// goroutine. A panic of OnPanic itself ends the process.
	OnPanic func(c *Conn, value any)
}

// HandlerError is the error of a connection that was ended, by a reset, because a
// function of the handler did not return: it panicked while [Handler].OnPanic was set,
// or called runtime.Goexit.
type HandlerError struct {
	Value any // of the panic, nil after runtime.Goexit
}

// Error implements error.
func (e *HandlerError) Error() string {
	if e.Value == nil {
		return "event: a function of the handler called runtime.Goexit"
	}
	return fmt.Sprintf("event: a function of the handler panicked: %v", e.Value)
}

// ErrFull is returned by [Conn.Write] when [Options].WriteLimit bytes, or more, are
// pending. Nothing was accepted. OnWritable is called when a Write can succeed again.
var ErrFull = errors.New("event: too many bytes are pending on the connection")
