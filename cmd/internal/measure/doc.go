// SPDX-License-Identifier: MIT

// Package measure runs workloads and turns them into numbers that can be compared.
//
// One round is one call of [Run]: goroutines repeat an operation, first unmeasured, then in a
// measured window. The harness allocates nothing inside the window and reads the clock once per
// operation, so allocations, CPU time and latencies are those of the operation.
//
// Go returns no threads to the system and caches memory, so two engines that share a process see
// each other's traces. Each round therefore runs in a child process of its own: the parent uses
// [Process] and [Interleave], the child [ServeWorker].
package measure
