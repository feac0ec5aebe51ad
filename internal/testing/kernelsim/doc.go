// SPDX-License-Identifier: MIT

// Package kernelsim simulates io_uring in memory, for tests of code that uses rings. A seed decides
// the order of completions and the faults.
//
// # One kernel, two front ends
//
// Operations, objects, provided buffers, cancellation, chains, timeouts and faults are simulated in
// one place. A test uses them in two ways:
//
//   - [sys.SetSimulator] makes a [Kernel] answer the system calls of package uring. Real code
//     down to the memory of the queues then runs on it. This needs a build with the race
//     detector on Linux. SQEs work on real descriptors of the process.
//   - [Kernel.Open] returns a [Ring], which replaces [uring.Ring]. A reactor uses it through
//     internal/ringhook. SQEs work on files and pipes in memory, or through a [Host] on
//     descriptors of the process.
//
// The second way is for tests in a bubble of testing/synctest. A goroutine that waits for a ring's
// descriptor, in the netpoller or in a system call, is not durably blocked, so the clock of the
// bubble would stop. A Ring wakes its [Parker] through a sync.Cond instead. It also works without
// the race detector, and on any system.
//
// # What is simulated
//
//	both          NOP, POLL_ADD (also multishot), POLL_REMOVE, ASYNC_CANCEL, TIMEOUT, LINK, HARDLINK, LINK_TIMEOUT, CQE_SKIP_SUCCESS
//	Ring          READ and WRITE of files in memory, READ of pipes; READ, WRITE and FSYNC of a Host
//	system calls  READ, WRITE and their FIXED kinds; RECV (also multishot, and into provided buffers), SEND, ACCEPT (also multishot)
//
// Below package uring there are rings with and without an index array, with deferred task work (at
// most twenty completions per enter, or as many as are requested), with restrictions, registered
// buffers and rings of provided buffers. A ring's descriptor is an eventfd that is readable while
// completions wait. Drains, fixed files, bundles and polling threads are not simulated. An SQE that
// is not simulated ends with EINVAL and, below package uring, is a violation.
//
// # What can go wrong
//
// [Faults] are probabilities. A [Plan] makes one [Fault] happen at a time. [Bugs] are faults that
// no kernel has; they show that a test would find them. docs/adding.md describes how to add
// a fault.
//
// # What is checked
//
// A buffer belongs to the kernel until the completion, and the simulated kernel uses that right. It
// writes garbage into a buffer that it will fill, and the data only at the end. It reads a buffer
// that it sends only at the end, and below package uring compares the content with that at the
// start. It fills provided buffers with garbage when they are published. All memory is Go's, so the
// race detector finds a use that is too early. [Kernel.Violations] returns operations that share a
// buffer; a buffer that changed before its completion, or that is provided twice; memory that is
// unmapped, a group that is unregistered and a ring that is closed while an operation in flight
// uses it; and a submission that ends inside a chain. Below package uring nothing keeps the memory
// of operations reachable. If the garbage collector has freed it, the process ends with "found bad
// pointer".
//
// [Kernel.Result] returns the result of an operation whose SQE has a number of the test in a field
// that no simulated operation reads (see [Tag]).
//
// # What a seed replays
//
// Every decision about an operation follows from the seed, the operation's object and the number of
// earlier operations on it. Every decision about a submission follows from the seed, the ring and
// the number of its earlier submissions. No decision depends on time. So a deterministic program
// replays exactly. The order in which goroutines reach the kernel is decided by Go's scheduler: a
// test with several goroutines replays its plan and its faults, but not every interleaving. Delays
// are counted in steps of the kernel's goroutine or use short times, which cost nothing under
// testing/synctest.
package kernelsim
