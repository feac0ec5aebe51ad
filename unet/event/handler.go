// SPDX-License-Identifier: MIT

package event

import "errors"

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
	// after [Conn.Abort] and [Server.Close], else what broke it, in a
	// *net.OpError.
	OnClose func(c *Conn, err error)
}

// ErrFull is what [Conn.Write] answers when as many bytes as
// [Options].WriteLimit, or more, are pending. Nothing was accepted; OnWritable
// says when to try again.
var ErrFull = errors.New("event: too many bytes are pending on the connection")
