// SPDX-License-Identifier: MIT

// Package kernelsim is a kernel in memory, for tests of what stands on a ring. Its
// rings take the entries that the builders of package uring make, and complete
// them in a random order and with faults that a seed decides, on any system
// and under the race detector.
//
// # What it can do
//
// NOP, READ and WRITE on files in memory, and with FSYNC on descriptors of the
// process (see [Host]), READ on pipes and POLL_ADD (also
// multishot) on them, READ_MULTISHOT of pipes into provided buffers ([BufRing]),
// TIMEOUT, ASYNC_CANCEL by user data, LINK, HARDLINK and
// LINK_TIMEOUT. Anything else completes with EINVAL. What can go wrong, and how
// often, is in [Faults]; the values there name the behaviour of Linux that
// each stands for. A [Plan] has one thing go wrong instead of many by chance.
//
// It is in the place of a ring. What stands below one, of package uring, is what
// package simkern simulates.
//
// # What it checks
//
// A buffer belongs to the kernel until the completion. The simulated one uses
// that right: it writes garbage into the buffer of a read at moments of its
// choice and the data at the very end, and it looks at the buffer of a write at
// the very end. A buffer that is used too early shows that, and the race
// detector sees it too. After the completion nothing is touched. A provided buffer
// is filled with garbage when it is given back. Two operations
// that share a buffer, a submission that ends inside a chain, a ring that is
// closed under its operations and other things that no careful user does are
// kept for [Kernel.Violations].
//
// [Outcome] tells what became of an operation that carries a number of the
// test's in a field that no simulated operation reads (see [Tag]).
//
// # What a seed replays
//
// Every decision about an operation (its faults, its delay) follows from the
// seed, the object it works on and how many operations that object has seen;
// every decision about a submission from the seed, the ring and how many
// submissions it has seen. Neither follows from time. So a program that is
// itself deterministic replays exactly. The order in which goroutines reach the
// kernel, and with it the order in which it chooses among what is ready, belong
// to the scheduler of Go: a test with several goroutines replays its plan and
// its faults, not every interleaving.
//
// Delays are counted in steps of the kernel's goroutine or use short times;
// under testing/synctest those cost nothing.
package kernelsim
