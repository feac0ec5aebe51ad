// SPDX-License-Identifier: MIT

package reactor

import (
	"encoding/json"
	"sync/atomic"
)

// counters are those of one loop.
type counters struct {
	submitted, completed, events, enters, retried, waits, refills, starved atomic.Uint64
	fixedFiles, fixedBuffers, plainBuffers                                 atomic.Uint64
	overflows                                                              atomic.Uint32
}

// Stats are counters since the reactor was opened.
type Stats struct {
	Submitted uint64 `json:"submitted"` // entries handed to the kernel
	Completed uint64 `json:"completed"` // completions reaped
	Events    uint64 `json:"events"`    // of them, events of streams that go on
	Enters    uint64 `json:"enters"`    // system calls that submitted or waited; with SQPoll, hand-overs to the kernel's thread
	Retried   uint64 `json:"retried"`   // operations submitted again after a cancellation nobody asked for
	Waits     uint64 `json:"waits"`     // waits for room
	Overflows uint64 `json:"overflows"` // times that completions had overflowed a completion queue
	Refills   uint64 `json:"refills"`   // provided buffers given back to their group
	Starved   uint64 `json:"starved"`   // times that a stream found its group empty, and went on later
	// Operations that named a registered file, a buffer of a pool that is
	// registered with the loop, and one that is not: RLIMIT_MEMLOCK is low, or
	// the operation has no such form.
	FixedFiles   uint64 `json:"fixedFiles"`
	FixedBuffers uint64 `json:"fixedBuffers"`
	PlainBuffers uint64 `json:"plainBuffers"`
	Files        int    `json:"files"`    // slots of the file table in use now
	InFlight     int    `json:"inFlight"` // operations in flight now
}

// BatchSize returns how many entries a system call submitted on average, 0
// before the first.
func (s Stats) BatchSize() float64 {
	if s.Enters == 0 {
		return 0
	}
	return float64(s.Submitted) / float64(s.Enters)
}

// Plus returns the sum of two sets of counters.
func (s Stats) Plus(t Stats) Stats {
	return Stats{
		Submitted:    s.Submitted + t.Submitted,
		Completed:    s.Completed + t.Completed,
		Events:       s.Events + t.Events,
		Enters:       s.Enters + t.Enters,
		Retried:      s.Retried + t.Retried,
		Waits:        s.Waits + t.Waits,
		Overflows:    s.Overflows + t.Overflows,
		Refills:      s.Refills + t.Refills,
		Starved:      s.Starved + t.Starved,
		FixedFiles:   s.FixedFiles + t.FixedFiles,
		FixedBuffers: s.FixedBuffers + t.FixedBuffers,
		PlainBuffers: s.PlainBuffers + t.PlainBuffers,
		Files:        s.Files + t.Files,
		InFlight:     s.InFlight + t.InFlight,
	}
}

// Stats returns the sum over all loops.
func (r *Reactor) Stats() Stats {
	var sum Stats
	for _, l := range r.loops {
		c := &l.stats
		sum = sum.Plus(Stats{
			Submitted:    c.submitted.Load(),
			Completed:    c.completed.Load(),
			Events:       c.events.Load(),
			Enters:       c.enters.Load(),
			Retried:      c.retried.Load(),
			Waits:        c.waits.Load(),
			Overflows:    uint64(c.overflows.Load()),
			Refills:      c.refills.Load(),
			Starved:      c.starved.Load(),
			FixedFiles:   c.fixedFiles.Load(),
			FixedBuffers: c.fixedBuffers.Load(),
			PlainBuffers: c.plainBuffers.Load(),
			InFlight:     l.table.Held(),
		})
	}
	sum.Files = int(r.files.busy.Load())
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
