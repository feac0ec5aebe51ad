// SPDX-License-Identifier: MIT

// Package faultsweep makes the kernel fail, for tests, each answer in turn.
//
// An [Operation] runs once without faults, while the answers of the kernel are counted by
// kind: entries by opcode, system calls by name. Then it runs again for each answer and
// each way in which that kind can go wrong ([Choices]), once and with all that follow it
// failing as well. After each run the sweep checks:
//
//   - the error, or the result: an operation that the fault has not ended tells what it
//     read and wrote, which the test compares;
//   - descriptors and goroutines: as many as before;
//   - the end of the run: one that takes longer than [Patience] hangs.
//
// Run itself checks the rest: slots in flight, provided buffers, whether the object still
// works or is dead in good order.
//
// # How an answer fails
//
// Through the real kernel and through a simulated one. The real kernel's faults are
// injected before the system call (package sys), not after it: an entry that fails becomes
// a no-op with that result (IORING_NOP_INJECT_RESULT, Linux 6.10), one that is short asks
// for half, a late one goes to a worker thread; a call that fails is not made, or is made
// for less. So the kernel could have given every answer, and cancellations, links and the
// order of completions are the kernel's own. The hook is compiled into builds with the
// race detector only (sys.Faulty).
//
// Package kernelsim is the simulated kernel, for faults that the real one has and that
// cannot be asked for: operations that fail after they have used the buffer for a while,
// completions that come twice, cancellations that report success and have no effect,
// submissions that end inside a chain, wakeups that come late. Rings below a reactor are
// simulated as a whole ([Operation].Sim, with the faults in [Simulated]), rings below
// anything else at the system calls ([Operation].Syscalls, with those in [AtSyscalls]): there a
// completion may also find the queue full. Buffers that are used before their completion,
// or are gone too early, are found whatever the result. Storms are runs in which answers of
// all kinds go wrong at random, in ways that pass.
//
// # What is swept
//
// [API] compares what a package exports with what its operations cover, so that a new
// function without one fails the test. A kind of answer without choices fails it too.
// With -sweep-all each answer fails, not only the first few of a kind.
package faultsweep
