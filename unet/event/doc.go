// SPDX-License-Identifier: MIT

// Package event provides servers that call your functions when a connection opens, when
// data has arrived, and when the connection closes. It is for servers with many
// connections and short work per message. For code that reads and writes in goroutines,
// use package unet or package net.
//
// # Model
//
// [Listen] starts a [Server] with one or more event loops. Each loop has a ring
// (io_uring) with one multishot accept, and one multishot receive for each connection.
// All connections of a loop share its provided buffers. Sends are submitted together.
// Between completions the loop waits in the kernel on its own thread, or in Go's
// netpoller ([Options].Wait).
//
// Where io_uring cannot be used, each loop is a loop of package watch on epoll. It
// receives and sends by plain system calls. The rest of this page applies to both.
//
// # Callbacks
//
// The calls for one connection never overlap. A callback that blocks delays all
// connections of its loop. Longer work belongs in goroutines, which may call every method
// of [Conn]. Writes from callbacks in one turn of the loop are sent together. A Write
// from another goroutine is sent at once if the loop sleeps, and otherwise in the next turn.
//
// A panic in a callback ends the process, as in any goroutine. With [Handler].OnPanic it
// ends only the connection. runtime.Goexit, which testing's FailNow calls, always ends
// only the connection; each call costs the loop a few hundred bytes of stack.
//
// [Blocking] returns a Handler for a function that reads from and writes to a net.Conn.
// The function runs as a coroutine of the loop. The rules for callbacks apply to it,
// except that it may wait in Read and Write of its connection.
//
// # Ownership
//
// The slice that OnData receives belongs to the server. It is valid until the callback
// returns. Write copies the bytes that the kernel does not take at once. [Conn.WriteFunc]
// does not copy: the memory belongs to the server until the server calls the function
// that was passed with it. [Conn.SendFile] sends a part of a file. The file must stay
// open until that function is called.
//
// # Connections that were not accepted
//
// [Server.Dial] and [Server.Enroll] serve connections that the server has not accepted.
// [New] serves an existing listener. [ConnOptions].Beside puts two connections on one
// loop, so their callbacks never overlap and a proxy needs no locks. A proxy calls
// [Conn.Full] after each Write, and pauses the other connection if it returns true.
//
// # Datagrams
//
// [Server.ListenPacket] serves UDP and Unix datagram sockets on the loops, with or
// without connections. [PacketHandler].OnPacket replies with [PacketConn.WriteTo]. On
// io_uring each loop has one multishot receive for each socket, with separate buffers.
// [PacketConn.WriteSegments] and [PacketConn.SetGRO] pass many datagrams of one size to
// and from the kernel in one piece. [PacketConn.PauseRead] stops receiving.
//
// # TLS
//
// [Options].TLS and [ConnOptions].TLS put crypto/tls on connections. Handshakes run in
// goroutines, and OnOpen is called after the handshake. Loops decrypt data before they
// call OnData. Write encrypts on the goroutine that calls it. The encrypted data, which
// is slightly longer, counts as pending.
//
// # Backpressure
//
// Bytes that Write has accepted and the kernel has not taken yet are pending. A
// connection holds at most [Options].WriteLimit pending bytes plus one Write. From that
// limit on, Write returns [ErrFull], and OnWritable is called when there is room.
// Meanwhile nothing is read from the connection, unless [Conn.SetFullDuplex] is set. Data
// that the ring has already received is kept; the buffers of the loop bound its size. An
// idle connection holds no buffer.
//
// # End
//
// [Server.Shutdown] and [Server.Close] end a server. If the ring or epoll instance of a
// loop fails, the loop closes its connections and its listening socket. [Server.Done] and
// [Server.Err] report that.
//
// # Kernels
//
// io_uring is used from Linux 6.0 on, and epoll where the kernel is older or policy
// forbids io_uring. On other systems goroutines that use package net call the same
// callbacks. [Options].Mode overrides this choice. [Server.Backend] returns the choice
// and its reason.
package event
