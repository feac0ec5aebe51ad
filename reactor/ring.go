// SPDX-License-Identifier: MIT

package reactor

import (
	"github.com/ringside-io/ringside/internal/ringseam"
	"github.com/ringside-io/ringside/uring"
)

// ring is what a loop needs of a ring. Tests use simulated rings.
type ring interface {
	// The loop calls these with mu held.
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

	// The loop calls these with reaping held.
	Reap([]uring.CQE) int
	CQOverflow() uint32

	Close() error
}

// parker waits until a ring may have completions.
type parker interface {
	// start begins to call ready after completions have arrived, never twice at the
	// same time. It calls failed once when it cannot continue.
	start(ready func(), failed func(error)) error
	// stop ends the calls and waits for the last one.
	stop() error
}

// opener opens a ring; first is the ring of the first loop, or nil.
type opener func(o *Options, first ring) (ring, parker, error)

// Tests of packages that use reactors put simulated rings below them.
var _ = ringseam.Provide(func(options any, open ringseam.Opener) {
	options.(*Options).open = func(o *Options, _ ring) (ring, parker, error) {
		r, p, err := open(ringseam.Options{Entries: o.Entries})
		if err != nil {
			return nil, nil, err
		}
		return r, testParker{p}, nil
	}
})

type testParker struct{ p ringseam.Parker }

func (t testParker) start(ready func(), failed func(error)) error { return t.p.Start(ready, failed) }
func (t testParker) stop() error                                  { return t.p.Stop() }
