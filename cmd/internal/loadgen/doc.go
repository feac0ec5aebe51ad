// SPDX-License-Identifier: MIT

// Package loadgen drives an echo server over many connections from one thread.
// It is written to cost little, because it runs on the machine whose server is
// measured: what it uses up, the server does not get, and a server that could do
// more waits for it. So it uses io_uring, where it can, to receive and send for
// many connections in one call, and epoll elsewhere; no goroutine per
// connection, no allocation while it measures. It belongs into a process of its
// own.
package loadgen
