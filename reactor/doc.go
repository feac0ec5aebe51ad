// SPDX-License-Identifier: MIT

// Package reactor is many rings behind one door: any goroutine submits an
// operation and waits for its result, and the package decides on which ring,
// in which system call and by whose hand.
//
// # Model
//
// A [Reactor] has one loop per P. A loop owns a ring, a table of operations
// and a goroutine that is parked in Go's netpoller on the ring's descriptor.
// A goroutine that calls [Reactor.Do] writes its entry into the ring of the
// loop that belongs to the P it runs on. The first to do so yields once, so
// that others that are ready add theirs, then submits all of them with one
// system call and reaps what has completed already; the rest is reaped by the
// parked goroutine when the kernel reports it. Nothing ticks, nothing spins,
// and an idle reactor uses no CPU.
//
// # Ownership
//
// The buffer and whatever else a caller names belong to the operation until
// Do returns. They are held by the operation's slot until the kernel's
// completion, so that they stay reachable and, as they escape to the heap,
// never move. Do returns only after that completion. User data is the slot's
// index and a generation.
//
// # Backpressure
//
// A loop holds at most [Options.InFlight] operations; Do waits, without
// spinning, until there is room. A completion queue as large as the table
// cannot overflow.
//
// # Threads
//
// The kernel cancels the operations of a thread that exits, for example of a
// goroutine that called runtime.LockOSThread and returned. An operation that
// comes back cancelled although nobody asked is submitted again.
//
// # Kernels
//
// Linux 5.11 and later. Where io_uring is absent or forbidden, New returns
// the reason, which package features can explain.
package reactor
