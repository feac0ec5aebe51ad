// SPDX-License-Identifier: MIT

// Package simkern is the kernel's half of rings, for tests of what stands on
// package uring: where package kernelsim is in the place of a ring, this stands below
// it, at the door to the kernel (package sys, in builds with the race detector).
// The queues, their flags and offsets, buffer rings and the calls that enter are
// those of Linux; entries work on real descriptors of the process.
//
// # What it can do
//
// NOP, READ, WRITE and their FIXED kinds, RECV (once and multishot, into the
// caller's memory or provided buffers), SEND, ACCEPT (once and multishot), POLL_ADD
// (once and multishot), POLL_REMOVE, ASYNC_CANCEL with all its ways of matching.
// Rings with and without an index array, with deferred task work (which runs at most
// twenty completions, or as many as are asked for, in an enter), with restrictions.
// Registered buffers and rings of provided buffers. Chains, drains, fixed files,
// linked timeouts, bundles and polling threads are not simulated: an entry that
// wants one is a violation.
//
// An operation keeps a reference to its file, a duplicate of the descriptor, until
// it ends. The ring's descriptor is an eventfd that is readable while completions
// wait: so it can be polled, and duplicated for Go's netpoller.
//
// # What can go wrong
//
// What a [Plan] says, one thing at a time: an operation fails after it has had its
// buffer for a while, transfers half, is cancelled by nobody, is done later than
// others; a cancellation or an update says that it came too late, and has changed
// nothing; a completion finds the queue full and has to be fetched; an enter
// takes fewer entries, or none; a wait ends early, a wake-up comes late.
//
// # What it checks
//
// A buffer is the kernel's until the completion, and used accordingly: garbage is
// written into one that is to be received into, until the data comes at the
// very end; what is to be sent is looked at the end and must not have changed.
// Provided buffers are filled with garbage when they are published. As all memory of
// rings is Go's, and queue heads and tails are atomic words of it, the race detector
// sees the order in which both halves use it. Reported as violations are: two
// operations that share a buffer; a buffer that changes while it is being sent;
// one that is provided twice; memory that is unmapped while something in flight may
// use it; a ring that is closed while operations have memory, or connections,
// unless it has failed. Nothing here keeps the memory of operations: what the
// collector has taken meanwhile ends the process with "found bad pointer".
package simkern
