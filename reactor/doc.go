// SPDX-License-Identifier: MIT

// Package reactor starts io_uring operations from any goroutine. A goroutine waits for
// the result, or passes a callback. The package chooses the ring, and submits the
// operations of several goroutines with one system call.
//
// # Loops
//
// A [Reactor] has several loops, one for each P by default. A loop has a ring, a table
// of operations and a goroutine that is parked in Go's netpoller until completions
// arrive. No thread waits in the kernel, no timer ticks, and an idle reactor uses no
// CPU.
//
// Any goroutine can submit. While several operations are in flight, the first goroutine
// that adds an SQE yields once, so that other runnable goroutines add theirs. Then it
// submits all of them with one system call and reaps the completions that have arrived.
// The loop's goroutine reaps the rest. In measurements 128 goroutines read from a disk
// at fio's rate, with fio's CPU time per read.
//
// When one operation runs at a time, a plain system call is as fast; see
// [Reactor.TryPlain]. One goroutine with many operations at a time, chains, registered
// files and buffers, and provided buffers need a ring of their own: use [uring.Ring].
//
// The rings are cooperative where the kernel supports that (COOP_TASKRUN, Linux 5.19):
// the kernel does not interrupt a thread for each completion, which saves a fifth of the
// time on a fast device. If the thread that submitted an operation is computing, the
// completion may wait for the next clock tick, 1 to 10 ms.
//
// # Ownership
//
// The memory of an [Op] belongs to the operation until its last completion. A slot of
// the loop's table refers to it, so that it stays reachable, and it is on the heap, so
// that it does not move. [Reactor.Do] and [Reactor.DoContext] return after that
// completion, also when the context ends. User data is the index of the slot and a
// generation, so that a late completion finds no slot.
//
// A descriptor belongs to the caller. Keep it open until the operation has ended. The
// kernel looks up the descriptor when it takes the SQE; if the descriptor was closed
// before, its number may name another file by then. Closing a descriptor does not end
// an operation: cancel it.
//
// In a build with the race detector, a goroutine of the reactor reads and writes the
// memory of reads, writes, sends and receives as the kernel does. The detector reports
// code that uses that memory too early.
//
// # Callbacks
//
// Cancellation and completion may race. Each operation ends exactly once. The callbacks
// of one loop run one after the other, on one goroutine and without a lock. A callback
// may call every method except Close, which panics. A callback that blocks delays the others.
// runtime.Goexit, which testing's FailNow calls, ends only the callback that calls it.
//
// # Limits
//
// A loop holds at most [Options.InFlight] operations. When the loop is full, Do waits
// until an operation has ended. Queue and Stream return [ErrFull], because a callback
// that waits could wait for itself. Where RLIMIT_MEMLOCK is low, New opens fewer and
// smaller rings.
//
// # Threads that exit
//
// The kernel cancels the operations of a thread that exits, for example of a goroutine that
// called runtime.LockOSThread and returned. The reactor submits such an operation again if
// its opcode allows that: reads, receives, accepts, polls and other operations without an
// effect unless they succeed, and writes and sends, because ECANCELED means that they have
// not begun. Operations that end with EINTR are submitted again if they have no effect
// unless they succeed. CLOSE, CONNECT, and operations that change files, names or
// descriptors are never submitted twice. An operation is submitted again at most 64 times.
// An operation that is cancelled by an SQE, such as [uring.SQE.CancelWith], stays
// cancelled. A stream is not started again: its callback gets ECANCELED.
//
// # Credentials and names
//
// Operations that use names or create sockets depend on the thread that submits them:
// on its credentials, working directory, root and namespaces. The reactor submits them in
// the call of Do, DoContext, Queue or Stream, on the caller's thread, never on that of
// another goroutine, and never a second time. If the kernel has no memory for such an
// operation, it ends with an error that wraps EAGAIN. All other operations may be submitted
// by the thread of any goroutine that uses the Reactor. So a SENDMSG has the credentials of
// any of them for a Unix socket: do not use it where threads differ.
//
// # Kernels
//
// The package needs Linux 5.11. Elsewhere, and where io_uring is forbidden, New returns an
// error with the reason. Package features reports the setting to change.
package reactor
