// SPDX-License-Identifier: MIT

// Package ringhook is a test hook: it lets tests replace the kernel's rings below every
// package that opens a reactor.
package ringhook

import "github.com/ringside-io/ringside/uring"

// Options describe the ring that a reactor opens.
type Options struct {
	Entries int // the size of the submission queue
}

// Ring is what a loop of a reactor needs of a ring.
type Ring interface {
	// The loop calls these with its mu held.
	SQE() *uring.SQE
	SQSpace() int
	Submit() (int, error)
	SubmitNoWait() (int, error)

	// Submitter returns the thread that submits. Its exit cancels what it has
	// submitted.
	Submitter() int
	// Exited reports whether a thread that was a Submitter has exited, and whether
	// that is sure.
	Exited(thread int) (exited, sure bool)
	// AnswersCancelled reports whether the file of a descriptor may answer ECANCELED
	// itself. It may block.
	AnswersCancelled(fd int) bool

	// The loop calls these with reaping held.
	Reap([]uring.CQE) int
	CQOverflow() uint32

	Close() error
}

// Parker waits until a ring may have completions.
type Parker interface {
	// Start begins to call ready after completions have arrived, never twice at the
	// same time. It calls failed once when it cannot continue.
	Start(ready func(), failed func(error)) error
	// Stop ends the calls and waits for the last one.
	Stop() error
}

// Opener opens a ring and its parker.
type Opener func(Options) (Ring, Parker, error)

// put is set by package reactor.
var put func(options any, open Opener)

// Provide is called by package reactor. f sets the opener of a *reactor.Options.
func Provide(f func(options any, open Opener)) bool {
	put = f
	return true
}

// Put makes reactors with the given options, a *reactor.Options, open their rings with
// open.
func Put(options any, open Opener) { put(options, open) }
