// SPDX-License-Identifier: MIT

// Package uring provides one io_uring: setup, typed submission queue entries,
// completions, registrations and provided-buffer rings, up to Linux 6.18 and
// without cgo.
//
// # Model
//
// A [Ring] has a submission queue (SQ) and a completion queue (CQ), both shared
// with the kernel. [Ring.SQE] returns the next free entry (SQE). A builder method such
// as [SQE.Read] fills it. [Ring.Submit] submits all filled entries, and [Ring.Reap]
// copies the completions (CQEs) that have arrived. The completion has the user data of
// its entry. Use an index with a generation as user data, never an address.
//
// # Ownership
//
// Memory that a builder receives belongs to the operation from the submission until
// that operation's own completion has been reaped (for zero-copy sends, until the
// notification; for multishot operations, until a completion without [CQEMore]). A
// cancellation does not end the operation; only its completion does. Until then the
// caller must keep the memory reachable, for example in a table indexed by the user
// data, and must neither reuse nor free it. The builders move the memory to the heap,
// so that a moving goroutine stack cannot leave the kernel with a stale address. They
// hold no reference to it: a ring does not know which of its entries are still in
// flight. The packages above (reactor, ufile, unet) enforce the rule; users of this
// package must do so themselves. [Ring.Close] cancels the operations in flight and
// returns [ErrInFlight] when it could not. The kernel copies small structures (iovecs,
// message headers, timespecs, addresses to send to) when it takes the entry. On kernels
// with [FeatSubmitStable] (5.5) they may be reused after the call that submitted the
// entry; with SQPOLL, after the completion.
//
// # Concurrency
//
// A Ring is not safe for concurrent use, with one exception: one goroutine may
// use the submission side (SQE, Submit) while another uses the completion side
// (Reap, Wait with NoSubmit). With [Options.SingleIssuer] every call that enters
// the kernel must come from one thread: lock the goroutine to it. The kernel
// cancels the requests of a thread that exits, so a goroutine that ends while
// locked to its thread takes its operations with it.
//
// # Kernels
//
// Rings need Linux 5.6 and are tested on 6.1, 6.12 and 6.18. Where io_uring is
// absent or forbidden [Open] returns an error; package features names the cause and
// the setting to change.
package uring
