// SPDX-License-Identifier: MIT

package kernelsim

import "github.com/ringside-io/ringside/uring"

// Outcome is what became of an operation, over all the times that it was
// submitted.
type Outcome struct {
	Submitted int
	Ended     int
	Res       int32  // of the last end
	Unasked   int    // ends with ECANCELED that nobody had asked for
	Asked     int    // cancellations and deadlines that reached it
	Data      []byte // a copy of what was transferred
}

// Tag numbers an entry of the test, in a field that no simulated operation
// looks at. Numbers begin at 1.
func Tag(e *uring.SQE, number uint64) { e.Raw().Addr3 = number }

// Outcome returns what became of the operation with the given number.
func (k *Kernel) Outcome(number uint64) Outcome {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.outcomes[number]; o != nil {
		return *o
	}
	return Outcome{}
}

// outcome returns the record of an operation. The caller holds mu.
func (k *Kernel) outcome(o *op) *Outcome {
	if o.tag() == 0 {
		return new(Outcome)
	}
	out := k.outcomes[o.tag()]
	if out == nil {
		out = new(Outcome)
		k.outcomes[o.tag()] = out
	}
	return out
}
