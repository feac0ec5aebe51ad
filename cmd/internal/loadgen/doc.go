// SPDX-License-Identifier: MIT

// Package loadgen drives an echo server over many connections from one thread.
// It is written to cost little, because it runs on the machine whose server is
// measured: readiness by epoll, no goroutine per connection, no allocation while
// it measures. It belongs into a process of its own.
package loadgen
