// SPDX-License-Identifier: MIT

package reactor

import (
	"encoding/json"
	"sync/atomic"
)

// counters are the counters of one loop.
type counters struct {
	submitted, completed, events, enters, retried, waits atomic.Uint64
	overflows                                            atomic.Uint32
}

// Stats are counters since the reactor was opened.
type Stats struct {
	Submitted uint64 `json:"submitted"` // SQEs that the kernel has taken
	Completed uint64 `json:"completed"` // CQEs reaped
	Events    uint64 `json:"events"`    // CQEs of streams that continued
	Enters    uint64 `json:"enters"`    // system calls that submitted
	Retried   uint64 `json:"retried"`   // operations submitted again because their thread had exited, or was interrupted
	Waits     uint64 `json:"waits"`     // operations that waited because Options.InFlight was reached
	Overflows uint64 `json:"overflows"` // times that completions had overflowed a completion queue
	InFlight  int    `json:"inFlight"`  // operations in flight now
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Submitted: s.Submitted + t.Submitted,
		Completed: s.Completed + t.Completed,
		Events:    s.Events + t.Events,
		Enters:    s.Enters + t.Enters,
		Retried:   s.Retried + t.Retried,
		Waits:     s.Waits + t.Waits,
		Overflows: s.Overflows + t.Overflows,
		InFlight:  s.InFlight + t.InFlight,
	}
}

// Stats returns the sum over all loops.
func (r *Reactor) Stats() Stats {
	var sum Stats
	for _, l := range r.loops {
		c := &l.stats
		sum = sum.Plus(Stats{
			Submitted: c.submitted.Load(),
			Completed: c.completed.Load(),
			Events:    c.events.Load(),
			Enters:    c.enters.Load(),
			Retried:   c.retried.Load(),
			Waits:     c.waits.Load(),
			Overflows: uint64(c.overflows.Load()),
			InFlight:  l.table.Held(),
		})
	}
	return sum
}

// String returns the counters as JSON, which makes a Reactor an expvar.Var:
// expvar.Publish("reactor", r).
func (r *Reactor) String() string {
	b, err := json.Marshal(r.Stats())
	if err != nil {
		return "{}"
	}
	return string(b)
}
