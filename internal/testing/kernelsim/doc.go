// SPDX-License-Identifier: MIT

// Package kernelsim simulates io_uring in memory, for tests of code that uses rings. A
// seed decides the order of completions and the faults.
//
// # One kernel, two front ends
//
// Operations, objects, provided buffers, cancellation, chains, timeouts and faults are
// simulated in one place. A test reaches them in two ways:
//
//   - [sys.SetSimulator] makes a [Kernel] answer the system calls of package uring: real
//     code down to the memory of the queues runs on it. This needs a build with the race
//     detector on Linux. Entries work on real descriptors of the process.
//   - [Kernel.Open] returns a [Ring], which stands for [uring.Ring] itself. A reactor uses
//     it through internal/ringhook. Entries work on files and pipes in memory, or through
//     a [Host] on descriptors of the process.
//
// The second exists for tests in a bubble of testing/synctest. A goroutine that waits in
// the netpoller or in a system call for a ring's descriptor is not durably blocked, so
// that the clock of the bubble would stand still. A Ring wakes its [Parker] through a
// sync.Cond instead. It also runs without the race detector, and on any system.
//
// # What is simulated
//
//	both          NOP, POLL_ADD (also multishot), POLL_REMOVE, ASYNC_CANCEL, TIMEOUT, LINK, HARDLINK, LINK_TIMEOUT, CQE_SKIP_SUCCESS
//	Ring          READ and WRITE of files in memory, READ of pipes; READ, WRITE and FSYNC of a Host
//	system calls  READ, WRITE and their FIXED kinds; RECV (also multishot, and into provided buffers), SEND, ACCEPT (also multishot)
//
// Below package uring there are rings with and without an index array, with deferred task
// work (at most twenty completions in an enter, or as many as are asked for), with
// restrictions, registered buffers and rings of provided buffers. A ring's descriptor is
// an eventfd that is readable while completions wait. Drains, fixed files, bundles and
// polling threads are not simulated. An entry that is not simulated ends with EINVAL and,
// below package uring, is a violation.
//
// # What can go wrong
//
// [Faults] are probabilities. A [Plan] makes one thing go wrong at a time: what, is a
// [Fault]. [Bugs] are what no kernel does; they show that a test would notice.
// docs/adding-a-fault.md adds one.
//
// # What is checked
//
// A buffer belongs to the kernel until the completion. The simulated one uses that right:
// it writes garbage into a buffer that it will fill, and the data at the very end; it
// reads a buffer that it empties at the very end, and below package uring compares it with
// what it was. Provided buffers are filled with garbage when they are published. All
// memory is Go's, so the race detector sees a use that is too early. [Kernel.Violations]
// returns: operations that share a buffer; a buffer that changed before its completion;
// one that is provided twice; memory that is unmapped, a group that is unregistered and a
// ring that is closed while an operation in flight uses it; a submission that ends inside
// a chain. Below package uring nothing keeps the memory of operations reachable: if the
// collector has taken it, the process ends with "found bad pointer".
//
// [Kernel.Result] returns what became of an operation that carries a number of the test's
// in a field that no simulated operation reads (see [Tag]).
//
// # What a seed replays
//
// Every decision about an operation follows from the seed, its object and how many
// operations the object has had; every decision about a submission from the seed, the ring
// and how many submissions it has had. Neither follows from time. So a deterministic
// program replays exactly. The order in which goroutines reach the kernel belongs to Go's
// scheduler: a test with several goroutines replays its plan and its faults, not every
// interleaving. Delays are counted in steps of the kernel's goroutine or use short times,
// which cost nothing under testing/synctest.
package kernelsim
