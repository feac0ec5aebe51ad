// SPDX-License-Identifier: MIT

// Package faultsweep makes the kernel fail, for tests, each answer in turn.
//
// An [Operation] is run once as the kernel would have it, while its answers are
// counted by kind: the entries of rings that the kernel takes, by opcode, and the
// calls that enter it, by name. Then it is run again for each answer and each way
// in which that kind can go wrong ([Choices]), once and with what follows it
// failing as well. After each run it is looked at what came of it:
//
//   - the right error, or the right result: an operation that the fault has not
//     ended says what it read and wrote, which the test compares;
//   - descriptors and goroutines: as many as before;
//   - the run's own end: one that takes longer than [Patience] hangs.
//
// What else belongs to an operation, such as slots in flight, provided buffers and
// whether the object still works or is dead in good order, its Run looks at.
//
// # How an answer fails
//
// Through the real kernel, and through a simulated one. The former's faults are put
// before it at the one door that package sys is, and not behind it: an entry that
// shall fail becomes a no-op with that result (IORING_NOP_INJECT_RESULT, Linux
// 6.10), one that shall be short asks for half, a late one is sent to a worker
// thread; a call that shall fail does not happen, or happens for less. So every
// answer is one that the kernel could have given, with nothing done that the answer
// denies, and cancellations, links and the order of completions are the kernel's
// own.
//
// The door asks in builds with the race detector only (sys.Faulty); in others
// nothing of this is compiled.
//
// Rings that stand below a reactor can be simulated instead ([Operation].Sim,
// package kernelsim), with faults that a kernel has and cannot be asked for
// ([Simulated]): operations that fail after they have used the buffer for a while,
// completions that come twice, cancellations that say they have cancelled and have
// not, submissions that end inside a chain, wake-ups that come late.
//
// So can rings that stand below anything else ([Operation].Door): of them the
// kernel's half is simulated (package simkern), at the same door, in the same
// builds. What can go wrong there is in [AtDoor]: beside the above a completion that
// finds the queue full. Buffers that are used before their completion, or are gone
// too early, are found whatever comes of the operation. There are storms, too: runs
// in which answers of all kinds go wrong at random, in ways that pass.
//
// # What is swept
//
// [API] compares what a package exports with what its operations say they cover, so
// that a new function without one fails the test. A kind of call
// without a list of faults fails it too. With -sweep-all each call fails, not only
// the first few of a kind.
package faultsweep
