// SPDX-License-Identifier: MIT

package reactor

import "github.com/ringside-io/ringside/uring"

// ring is what a loop needs of a ring: that of the kernel, or a simulated one
// in tests.
type ring interface {
	// The submission side, under the loop's mu.
	SQE() *uring.SQE
	SQSpace() int
	Submit() (int, error)
	SubmitNoWait() (int, error)
	Publish() (int, error) // shows the filled entries, which Enter submits

	// Submitter returns the thread that submits, whose exit cancels what it has
	// submitted; 0 where no exit does.
	Submitter() int
	// Exited reports whether a thread that was a Submitter has exited, and whether
	// that is sure.
	Exited(thread int) (exited, sure bool)

	// The completion side.
	Enter(uring.WaitOptions) (int, error)
	Reap([]uring.CQE) int
	CQOverflow() uint32

	Close() error
}

// parker waits until a ring may have completions.
type parker interface {
	// start begins to call ready, never twice at a time, after completions
	// have arrived; failed once when it cannot go on.
	start(ready func(), failed func(error)) error
	// stop ends the calls and waits for the last one.
	stop() error
}

// opener opens the ring of loop number i; first is that of loop 0.
type opener func(o *Options, i int, first ring) (ring, parker, error)
