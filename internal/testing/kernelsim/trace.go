// SPDX-License-Identifier: MIT

package kernelsim

import (
	"fmt"
	"maps"
	"strings"

	"github.com/ringside-io/ringside/uring"
)

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

// The trace keeps the last events and, from before them, the first that were
// planted: those that a test looks for.
const (
	traceLen   = 1 << 10
	plantedLen = 64
)

// line prints the i-th event.
func (e *event) line(i int) string {
	return fmt.Sprintf("%6d ring %d %-12s %-14v fd %-3d user data %016x result %-5d tag %d\n",
		i, e.ring, e.what, e.op, e.fd, e.ud, e.res, e.tag)
}

// trace is a bounded record of what happened, and an unbounded count.
type trace struct {
	events  [traceLen]event
	planted []string
	n       int
	counts  map[string]int
}

func (t *trace) add(e event) {
	if strings.HasPrefix(e.what, "bug: ") && len(t.planted) < plantedLen {
		t.planted = append(t.planted, e.line(t.n))
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

// Counts returns how often each thing has happened, so that a test can tell that
// it saw what it was made for.
func (k *Kernel) Counts() map[string]int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.trace.counts)
}

// Trace returns the last entries, completions and decisions of the kernel, one
// per line, the oldest first.
func (k *Kernel) Trace() string {
	if !k.mu.TryLock() { // the caller may be about to report that we hang
		return "the simulated kernel is busy: no trace\n"
	}
	defer k.mu.Unlock()
	var b strings.Builder
	t := &k.trace
	b.WriteString(strings.Join(t.planted, ""))
	for i := max(0, t.n-traceLen); i < t.n; i++ {
		b.WriteString(t.events[i%traceLen].line(i))
	}
	fmt.Fprintf(&b, "alive: %d\n", len(k.live.all))
	for _, o := range k.live.all {
		fmt.Fprintf(&b, "       ring %d %-12v %-14v fd %-3d user data %016x tag %d\n",
			o.ring.id, o.state, o.code(), o.sqe.Raw().Fd, o.sqe.Raw().UserData, o.tag())
	}
	for _, r := range k.rings {
		fmt.Fprintf(&b, "ring %d: %d entries taken, %d completions, %d overflowed, waiting %v, closed %v, fatal %v\n",
			r.id, r.head.Load(), len(r.cq), len(r.backlog), r.waiting, r.closed, r.fatal)
	}
	return b.String()
}

// note records something about an operation. The caller holds mu.
func (k *Kernel) note(what string, o *op, res int32) {
	k.trace.add(event{what, o.ring.id, o.code(), o.sqe.Raw().Fd, o.sqe.Raw().UserData, res, o.tag()})
}
