// SPDX-License-Identifier: MIT

// Package reactor is many rings behind one door: goroutines start operations
// and wait for them, or leave a callback, and the package decides on which
// ring, in which system call and by whose hand.
//
// # Two kinds of loop
//
// A [Reactor] has several loops, each with a ring, a table of operations and a
// goroutine. [Options.Pinned] chooses the kind of all of them:
//
//   - Shared loops, the default. Any goroutine submits. The first to add an
//     entry while the device has work yields once, so that others that are
//     ready add theirs, then submits all with one system call and reaps what
//     has completed. The loop's goroutine is parked in Go's netpoller on the
//     ring's descriptor and reaps the rest. No thread waits in the kernel.
//     Use them for goroutines that start single operations and wait: files.
//   - Pinned loops. Each has a locked thread, which alone enters the kernel
//     (SINGLE_ISSUER, DEFER_TASKRUN, registered ring) and runs the callbacks.
//     Others add entries and wake it. Use them for callbacks, multishot
//     operations and batches, where completions are many and short: servers,
//     watchers, one goroutine that reads a thousand blocks.
//
// Nothing ticks, nothing spins, and an idle reactor uses no CPU.
//
// # Ownership
//
// The buffer of an [Op], and what it names to be kept, belong to the operation
// until its last completion. They are held by a slot of the loop's table, so
// that they stay reachable and, as they escape to the heap, never move. [Do]
// and its relatives return only after that completion, also when their context
// is cancelled: the cancellation is passed to the kernel, and the buffer is
// the caller's again when the call returns. User data is the index of the slot
// and a generation, so that a late completion finds nothing.
//
// # Ends
//
// Cancel, deadline and completion may race in every order; each operation ends
// exactly once. Callbacks never run under a lock and may call any method. The
// callbacks of one loop run one after the other: on the locked thread of a
// pinned loop, on a goroutine of its own for a shared one.
//
// # Backpressure
//
// A loop holds at most [Options.InFlight] operations. Do waits, without
// spinning, until there is room; Queue answers [ErrFull], because a callback
// that waits for room would wait for itself.
//
// # Threads
//
// The kernel cancels the operations of a thread that exits, for example of a
// goroutine that called runtime.LockOSThread and returned. An operation that
// comes back cancelled although nobody asked is submitted again.
//
// # Kernels
//
// Linux 5.11 for shared loops, 6.1 for pinned ones. Where io_uring is absent or
// forbidden, New returns the reason, which package features can explain.
//
// [Do]: https://pkg.go.dev/github.com/ringside-io/ringside/reactor#Reactor.Do
package reactor
