// SPDX-License-Identifier: MIT

// Package event provides servers that call your functions: when a connection opens, when
// data have arrived, and when the connection closes. It is for servers with many
// connections and short work per message. For code that reads and writes in goroutines
// use package unet or package net.
//
// # Model
//
// [Listen] starts a [Server] with one or more event loops. Each loop has an io_uring
// with one multishot accept and one multishot receive per connection, which uses buffers
// that all connections of the loop share. Sends are submitted together. Between
// completions the loop waits in the kernel on a thread of its own, or in Go's netpoller
// ([Options].Wait).
//
// Where io_uring cannot be used each loop is a loop of package watch on epoll, which
// receives and sends by plain system calls. Everything below applies to both.
//
// # Callbacks
//
// The calls for one connection never overlap. A callback that blocks delays all connections
// of its loop, so longer work belongs in goroutines, which may call every method of [Conn].
// Writes from callbacks in one turn of the loop are sent together. A Write from another
// goroutine is sent at once when the loop sleeps.
//
// A panic in a callback ends the process, as in any goroutine. With [Handler].OnPanic it
// ends only the connection. runtime.Goexit, which testing's FailNow calls, always ends
// only the connection; each call costs the loop a few hundred bytes of stack.
//
// [Blocking] makes a Handler of a function that reads from and writes to a net.Conn, as a
// coroutine of the loop. The rules for callbacks apply to that function, except that it
// may wait in Read and Write of its connection.
//
// # Ownership
//
// The slice that OnData receives belongs to the server. The callback must not use it after
// it has returned. Write copies the bytes that the kernel does not take at once.
// [Conn.WriteFunc] does not copy: its memory belongs to the server until the server calls
// the given function. [Conn.SendFile] sends a part of a file, which must stay open until
// the function is called.
//
// # Connections that were not accepted
//
// [Server.Dial] and [Server.Enroll] serve connections that the server has not accepted.
// [New] serves an existing listener. [ConnOptions].Beside puts two connections on one
// loop, so their callbacks never overlap and a proxy needs no locks. A proxy calls
// [Conn.Full] after each Write, and pauses the other connection when it returns true.
//
// # Datagrams
//
// [Server.ListenPacket] serves UDP and Unix datagram sockets on the loops, beside
// connections or alone. [PacketHandler].OnPacket replies with [PacketConn.WriteTo]. On
// io_uring each loop has one multishot receive for each socket, with separate buffers.
//
// # TLS
//
// [Options].TLS and [ConnOptions].TLS put crypto/tls on connections. Handshakes run in
// goroutines, and OnOpen is called after the handshake. Loops decrypt data before they
// call OnData. Write encrypts on its caller's goroutine, so slightly more bytes are queued
// than it was given.
//
// # Backpressure
//
// A connection holds at most [Options].WriteLimit pending bytes, and one Write more. Beyond
// that Write returns [ErrFull], OnWritable is called when there is room, and nothing is
// read from the connection meanwhile, unless [Conn.SetFullDuplex] is set. Data that the
// ring has already received are kept; the buffers of the loop bound their size. An idle
// connection holds no buffer.
//
// # End
//
// [Server.Shutdown] and [Server.Close] end a server. A loop whose ring or epoll
// instance fails ends its connections and its listening socket; [Server.Done] and
// [Server.Err] report that.
//
// # Kernels
//
// io_uring is used from Linux 6.0 on, and epoll where the kernel is older or policy
// forbids io_uring. On other systems goroutines on package net call the same callbacks.
// [Options].Mode overrides this; [Server.Backend] returns the choice and its reason.
package event
