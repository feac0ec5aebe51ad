// SPDX-License-Identifier: MIT

// Package ringseam lets a test put rings of its own in the place of the
// kernel's, below everything that makes a reactor for itself.
package ringseam

import "github.com/ringside-io/ringside/uring"

// Options say what kind of ring a loop wants.
type Options struct {
	Entries int
	Pinned  bool // one thread submits and waits
}

// Ring is what a loop needs of a ring; package reactor says under which rules.
type Ring interface {
	SQE() *uring.SQE
	SQSpace() int
	Submit() (int, error)
	SubmitNoWait() (int, error)
	Publish() (int, error)
	Enter(uring.WaitOptions) (int, error)
	Reap([]uring.CQE) int
	CQOverflow() uint32
	Close() error
	Submitter() int
	Exited(thread int) (exited, sure bool)

	// Of rings that one thread waits on.
	Wake()
	Rearm(*uring.SQE)
}

// Parker calls ready after completions have arrived, never twice at a time, and
// failed once when it cannot go on.
type Parker interface {
	Start(ready func(), failed func(error)) error
	Stop() error
}

// Opener opens a ring, and its parker unless one thread waits on the ring.
type Opener func(Options) (Ring, Parker, error)

// put is package reactor's part.
var put func(options any, open Opener)

// Provide is called by package reactor, with what makes its options use other
// rings.
func Provide(f func(options any, open Opener)) bool {
	put = f
	return true
}

// Put makes reactors with the given options, a *reactor.Options, use other rings
// than the kernel's. It is for tests.
func Put(options any, open Opener) { put(options, open) }
