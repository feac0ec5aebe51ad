// SPDX-License-Identifier: MIT

// Package inflight provides a table of the operations that the kernel has taken. A slot
// owns what its operation needs (the buffer, the file) from the submission until that
// operation's own completion. Slots are found by an [ID], which travels as user data:
// the index of the slot and a generation, never an address, so that a late or repeated
// completion of an operation that has ended finds no slot.
//
// # Life of a slot
//
//	free ── Acquire ──> acquired ── Arm ──> held ── Complete ──> done ── Release ──> free
//	                                         │
//	                                      Abandon
//	                                         v
//	                                     abandoned ── Complete ──> (the completer releases)
//
// Acquired: the slot is being filled. Held: the kernel may use the slot's
// resources, and a goroutine waits. Done: the kernel is finished, the waiter has
// not yet taken the result. Abandoned: no goroutine waits, but the kernel still may
// use the resources, so they stay until the completion.
package inflight
