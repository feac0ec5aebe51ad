// SPDX-License-Identifier: MIT

// Package faultsweep runs operations while each answer of the kernel fails in turn. It is
// for tests.
//
// An [Operation] runs once without faults. The sweep counts the kernel's answers by kind:
// SQEs by opcode, system calls by name. Then the operation runs again for each answer and
// for each way in which that kind can fail ([Choices]): once with one failure, and once
// with all later answers of the kind failing too. After each run the sweep checks:
//
//   - the error, or the result if the fault did not end the operation;
//   - that there are as many descriptors and goroutines as before;
//   - that the run has ended: after [Patience] it counts as hanging.
//
// Run checks the rest: slots in flight, provided buffers, and that the object still works
// or returns errors.
//
// # How an answer fails
//
// There are two ways. With the real kernel, faults are injected before the system call, by
// a hook in package sys. An SQE that is to fail becomes a no-op with that result
// (IORING_NOP_INJECT_RESULT, Linux 6.10). One that is to be short asks for half. One that
// is to be late goes to a worker thread. A system call that is to fail is not made, or is
// made for less. So every answer is one that the kernel could have given. Cancellations,
// links and the order of completions are the kernel's own. Only builds with the race
// detector have the hook (sys.Faulty).
//
// Package kernelsim simulates a kernel for faults that cannot be requested from the real
// one: operations that fail after they have used the buffer for a while, completions that
// appear twice, cancellations that report success without effect, submissions that end
// inside a chain, late wakeups. Rings below a reactor are replaced
// ([Operation].Sim, with the faults in [Simulated]). Other rings run on simulated system
// calls ([Operation].Syscalls, with the faults in [AtSyscalls]), where a completion may
// also find the CQ full. The simulation reports buffers that are used before their
// completion or freed too early, whatever the result. Storms are runs in which answers of
// all kinds fail at random, in ways that pass.
//
// # What is swept
//
// [API] compares what a package exports with what its operations cover: a new function
// without an operation fails the test, and so does a kind of answer without choices.
// With -sweep-all each answer fails, not only the first few of a kind.
package faultsweep
