// SPDX-License-Identifier: MIT

// Package event is a server that calls functions of yours: one when a
// connection opens, one when data has arrived, one when it closes. It is for
// servers with many connections and short work per message; for code that reads
// and writes in goroutines use package unet, or net.
//
// # Model
//
// [Listen] starts a [Server] with one or more event loops. Each loop has an
// io_uring with one multishot accept, one multishot receive per connection,
// which takes its memory from buffers that all connections of the loop share,
// and sends that go into the kernel together. Between completions the loop waits
// in the kernel on a thread of its own, or, where that does not pay, in Go's
// netpoller ([Options].Wait).
//
// Where io_uring cannot be used each loop is a loop of package watch on epoll, which
// receives and sends by plain calls. Everything below holds for it as well.
//
// # Callbacks
//
// The calls for one connection never overlap. A callback that blocks holds up
// all connections of its loop, so longer work belongs into goroutines; every
// method of [Conn] may be called from them. A Write from a callback is sent
// with all others of the same turn; one from elsewhere is sent at once when the
// loop sleeps.
//
// A callback that panics ends the process, as one of any goroutine; with
// [Handler].OnPanic it ends its connection only. runtime.Goexit, as testing's
// FailNow calls it, ends its connection only in any case; each costs its loop a
// few hundred bytes of stack.
//
// # Ownership
//
// The slice that OnData gets is the server's: it must not be used after the
// function has returned. Write copies what it is given.
//
// # Backpressure
//
// A connection holds at most [Options].WriteLimit bytes that wait to be sent,
// and one Write more. Beyond that Write answers [ErrFull], OnWritable says when
// there is room, and nothing is read from the connection meanwhile. What the
// kernel had received before it was told to stop is kept; that is at most what
// the buffers of the loop hold. An idle connection holds no buffer.
// [Conn.SetFullDuplex] has a connection read all the same.
//
// # End
//
// [Server.Shutdown] and [Server.Close] end a server. A loop whose ring or epoll
// instance fails ends its connections and its listening socket; [Server.Done] and
// [Server.Err] tell.
//
// # Kernels
//
// io_uring is used from Linux 6.0 on, epoll where the kernel is older or policy
// forbids io_uring, and on other systems goroutines on package net call the same
// callbacks, unless [Options].Mode insists; [Server.Backend] says which and why.
package event
