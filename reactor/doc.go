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
//     Their rings are cooperative where the kernel has that (COOP_TASKRUN,
//     5.19; not with SQPoll, nor where processors have no ticks): threads are not
//     interrupted for completions, which saves a fifth of the time on a
//     fast device; but one that a computing thread has submitted may wait 1 to 10 ms for
//     the next tick.
//   - Pinned loops. Each has a locked thread, which alone enters the kernel
//     (SINGLE_ISSUER, DEFER_TASKRUN, registered ring) and runs the callbacks.
//     Others add entries and wake it.
//
// Which one to use, by what was measured on two processors:
//
//   - Goroutines that start single operations and wait, as with files: shared.
//     They batch by themselves. 128 readers of a disk got the rate of fio with
//     its CPU per read. With pinned loops each operation has to wake a thread
//     first and a goroutine then.
//   - One goroutine with many operations at a time ([Reactor.DoBatch]): pinned.
//     A batch of 128 reads took 3.2 times as many a second as a goroutine each,
//     with a sixth of the CPU.
//   - Callbacks and streams in a server whose callbacks start the next
//     operation: pinned. Completions run on the thread that submitted, without
//     interrupting others, and sends leave with the wait: 0.1 system calls a
//     request where package net makes 3, and 1.5 to 1.6 times its rate with 100
//     connections. A loop parked in the netpoller that ran its callbacks itself
//     was as fast; a shared loop of this package hands them to a goroutine.
//   - Readiness of many descriptors by multishot polls: pinned. With deferred
//     task work an event of up to 100 descriptors cost 0.6 of epoll's, without
//     it more than epoll's.
//   - One operation at a time: neither. A plain call is as fast; see
//     [Reactor.TryPlain].
//
// Pinned loops have a thread each, which competes with the program's own where
// the callbacks are not most of the work: then fewer loops than processors do.
//
// Nothing ticks, nothing spins, and an idle reactor uses no CPU, unless SQPoll
// is set.
//
// # SQPoll
//
// With [Options.SQPoll] a thread of the kernel looks for entries, and submitting
// makes no system call while it is awake. All loops of a reactor share one
// thread (ATTACH_WQ), as they share the worker threads: it takes at most 8
// entries at a time from each ring, so that one busy ring does not starve the
// others, and which is why chains are limited to 8.
//
// The price is a processor: the thread spins for a second after the last entry
// before it sleeps, and then the next submission has to wake it. It pays where a
// processor is idle otherwise, submissions never pause for long, and system
// calls are the bottleneck, such as one goroutine that drives a fast device. On
// two processors it lost everywhere. Callbacks and waiting stay as with shared
// loops.
//
// # Registered files and buffers
//
// [Reactor.RegisterFile] puts a file into the table of every loop; name it in
// [Op.File]. It spares a look-up and an atomic counter per operation: what
// several threads meet at that use one file. A [BufferPool] has buffers that the
// kernel has pinned once instead of for each operation; name one in [Op.Buffer].
// It is for O_DIRECT, from 4 KiB on, and for sends without a copy. Both are used
// again only when no operation names them any more, and are routed and retried
// like others.
//
// A [BufferGroup] turns receiving round: the kernel picks a buffer when data is
// there. Streams that wait own none, so ten thousand connections need no more
// memory than a few that are busy. It goes back when the callback returns, or
// when the [Chunk] that the callback kept is released. A stream that finds the
// group empty rests until a buffer is back: size a group so that [Stats.Starved]
// stays small.
//
// What may be registered depends on RLIMIT_MEMLOCK and RLIMIT_NOFILE: where they
// are low, tables are smaller, and pools have fewer registered buffers, or none,
// which only Stats shows.
//
// # Ownership
//
// The buffer of an [Op], and what it names to be kept, belong to the operation
// until its last completion. They are held by a slot of the loop's table, so
// that they stay reachable and, as they escape to the heap, never move. [Reactor.Do]
// and its relatives return only after that completion, also when their context
// is cancelled: the cancellation is passed to the kernel, and the buffer is
// the caller's again when the call returns. User data is the index of the slot
// and a generation, so that a late completion finds nothing.
//
// A descriptor is the caller's: keep it open until the operation has ended. One
// that is closed earlier is harmless once the kernel has the entry, which then
// works on the file that it named; before that the number may name another file
// by then. [FixedFile] has no such gap. Closing does not end an operation: cancel
// it, too.
//
// In a build with the race detector the kernel takes part: it reads or writes the
// buffer of a Read, Write, Recv, Send or SendZC as soon as the operation is
// started, and stops before its end. Whoever touches the buffer in between is
// reported, on whatever goroutine; so is who uses a Chunk after its release. What
// is released to a BufferPool or a BufferGroup is overwritten. Other builds have
// nothing of that.
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
// ends with ECANCELED for that reason is submitted again if its opcode allows it: reads,
// receives, accepts, polls and what else has no effect without its success, writes
// and sends, because ECANCELED says that none has begun. One that ends with EINTR
// is submitted again if it has no effect without its success. CLOSE, CONNECT and
// what changes files, names or descriptors is never submitted twice. An operation
// goes on 64 times at most. What a user cancels by an entry, such as
// [uring.SQE.CancelFD], stays cancelled. A stream into a group goes on, another stream
// ends, for its owner to decide, and so does a chain.
//
// # Kernels
//
// Linux 5.11 for shared loops, 6.1 for pinned ones; 5.13 for SQPoll and for
// registered files and buffers; 5.19 for groups, 6.0 for streams that receive into them.
// Where io_uring is absent or
// forbidden, New returns the reason, which package features can explain.
package reactor
