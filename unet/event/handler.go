// SPDX-License-Identifier: MIT

package event

import (
	"errors"
	"fmt"
)

// Handler is what a server calls. Each function may be nil. The calls for one
// connection come one after the other, never two at once; those for different
// connections may run at the same time. A function that blocks holds up every
// connection of its loop: hand such work to a goroutine, which may then use the
// connection's methods.
type Handler struct {
	// OnOpen is told of a new connection, before anything else is.
	OnOpen func(c *Conn)
	// OnData gets what the peer sent, in order, in pieces that follow the
	// network and not the peer's writes. The slice belongs to the server again
	// when the function returns: copy what has to live longer.
	OnData func(c *Conn, data []byte)
	// OnEOF is told that the peer has ended its direction. The handler may go on
	// writing and must call [Conn.Close] in the end. Without OnEOF the server
	// sends what is pending and closes the connection.
	OnEOF func(c *Conn)
	// OnWritable is told that there is room again after [Conn.Write] answered
	// [ErrFull]: at most half of [Options].WriteLimit is pending.
	OnWritable func(c *Conn)
	// OnTimer is told that the time of [Conn.SetTimer] is over.
	OnTimer func(c *Conn)
	// OnShutdown is told once that [Server.Shutdown] wants the connection to
	// end, after all that the peer had sent by then was given to OnData. The
	// handler finishes what it is about and calls [Conn.Close]. Without
	// OnShutdown the server sends what is pending, ends its direction, and
	// closes when the peer has ended its own.
	OnShutdown func(c *Conn)
	// OnClose is the last call for a connection. The error is nil after
	// [Conn.Close], io.EOF when the peer ended the connection, net.ErrClosed
	// after [Conn.Abort] and [Server.Close], a *[HandlerError] when a function of
	// the handler has panicked or ended its goroutine, else what broke the
	// connection, in a *net.OpError.
	OnClose func(c *Conn, err error)
	// OnPanic is called, if it is set, when a function of the handler, or one
	// given to [Conn.Post], panics, with the panic's value. Only that connection
	// ends, with a reset. Without OnPanic a panic ends the process, as one of any
	// goroutine. A panic of OnPanic itself ends the process.
	OnPanic func(c *Conn, value any)
}

// HandlerError is why a connection ended of which a function of the handler did
// not return: it panicked while [Handler].OnPanic was set, or called
// runtime.Goexit, which ends that connection only, with a reset.
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

// ErrFull is what [Conn.Write] answers when as many bytes as
// [Options].WriteLimit, or more, are pending. Nothing was accepted; OnWritable
// says when to try again.
var ErrFull = errors.New("event: too many bytes are pending on the connection")
