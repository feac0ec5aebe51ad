// SPDX-License-Identifier: MIT

// Package ringhook is a test hook: it lets tests replace the kernel's rings below every
// package that opens a reactor.
package ringhook

import "github.com/ringside-io/ringside/uring"

// Options describe the ring that a reactor opens.
type Options struct {
	Entries int // the size of the submission queue
}

// Ring is what a reactor needs of a ring. Package reactor documents the methods.
type Ring interface {
	SQE() *uring.SQE
	SQSpace() int
	Submit() (int, error)
	SubmitNoWait() (int, error)
	Submitter() int
	Exited(thread int) (exited, sure bool)
	AnswersCancelled(fd int) bool
	Reap([]uring.CQE) int
	CQOverflow() uint32
	Close() error
}

// Parker calls ready after completions have arrived, never twice at the same time. It
// calls failed once when it cannot continue. Stop waits for the last call.
type Parker interface {
	Start(ready func(), failed func(error)) error
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
