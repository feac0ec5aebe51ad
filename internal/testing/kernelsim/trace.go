// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"maps"
	"strings"

	"github.com/ringside-io/ringside/uring"
)

// Result sums up the results of an operation, which may have been submitted several times.
type Result struct {
	Submitted int
	Ended     int
	Res       int32  // of the last completion
	Unasked   int    // unrequested ends with ECANCELED
	Asked     int    // cancellations and deadlines that were applied to it
	Data      []byte // a copy of what was transferred
}

// Tag puts the number of a test's operation into a field that no simulated operation reads. Numbers
// begin at 1.
func Tag(e *uring.SQE, number uint64) { e.Raw().Addr3 = number }

// Result returns the results of the operation with the given number.
func (k *Kernel) Result(number uint64) Result {
	k.mu.Lock()
	defer k.mu.Unlock()
	if o := k.results[number]; o != nil {
		return *o
	}
	return Result{}
}

// result returns the record of an operation. The caller holds mu.
func (k *Kernel) result(o *op) *Result {
	if o.tag() == 0 {
		return new(Result)
	}
	out := k.results[o.tag()]
	if out == nil {
		out = new(Result)
		k.results[o.tag()] = out
	}
	return out
}

// event is one line of the trace.
type event struct {
	what string
	ring int
	op   uring.Op
	fd   int32
	ud   uint64
	res  int32
	tag  uint64
}

// The trace keeps the last events. It also keeps the first events of seeded bugs, for which tests
// look.
const (
	traceLen  = 1 << 10
	seededLen = 64
)

// line prints the i-th event.
func (e *event) line(i int) string {
	return fmt.Sprintf("%6d ring %d %-12s %-14v fd %-3d user data %016x result %-5d tag %d\n",
		i, e.ring, e.what, e.op, e.fd, e.ud, e.res, e.tag)
}

// trace is a bounded record of events, with unbounded counts.
type trace struct {
	events [traceLen]event
	seeded []string
	n      int
	counts map[string]int
}

func (t *trace) add(e event) {
	if strings.HasPrefix(e.what, "bug: ") && len(t.seeded) < seededLen {
		t.seeded = append(t.seeded, e.line(t.n))
	}
	t.events[t.n%traceLen] = e
	t.n++
	t.count(e.what)
}

func (t *trace) count(what string) {
	if t.counts == nil {
		t.counts = make(map[string]int)
	}
	t.counts[what]++
}

// Counts returns the number of occurrences of each event. With it a test checks that its fault
// occurred.
func (k *Kernel) Counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.trace.counts)
}

// Trace returns the last SQEs, completions and decisions of the kernel, one per line, oldest first.
func (k *Kernel) Trace() string {
	if !k.mu.TryLock() { // the caller may be reporting a hang
		return "the simulated kernel is busy: no trace\n"
	}
	defer k.mu.Unlock()
	var b strings.Builder
	t := &k.trace
	b.WriteString(strings.Join(t.seeded, ""))
	for i := max(0, t.n-traceLen); i < t.n; i++ {
		b.WriteString(t.events[i%traceLen].line(i))
	}
	fmt.Fprintf(&b, "alive: %d\n", len(k.live.all))
	for _, o := range k.live.all {
		fmt.Fprintf(&b, "       ring %d %-12v %-14v fd %-3d user data %016x tag %d\n",
			o.ring.base().id, o.state, o.code(), o.e.Fd, o.e.UserData, o.tag())
	}
	for _, r := range k.rings {
		q := r.base()
		fmt.Fprintf(&b, "ring %d: %v, %d overflowed, closed %v, failed %v\n", q.id, r, len(q.backlog), q.closed, q.failed)
	}
	return b.String()
}

// note records an event of an operation. The caller holds mu.
func (k *Kernel) note(what string, o *op, res int32) {
	k.trace.add(event{what, o.ring.base().id, o.code(), o.e.Fd, o.e.UserData, res, o.tag()})
}
