// SPDX-License-Identifier: MIT

package kernelsim

import (
	"syscall"
	"time"

	"github.com/ringside-io/ringside/uring"
)

// Plan says what goes wrong, one thing at a time, where [Faults] leave that to
// chance. Its functions are called with the kernel's lock held and may be nil.
type Plan struct {
	// Op is asked about each operation that begins, but for the kernel's own.
	Op func(e *uring.SQE) Fate
	// Submit is asked how many of n entries shall be taken, or with which error
	// none; split says that the border may be inside a chain. EBADF is for good.
	Submit func(n int) (take int, split bool, err error)
	// Wait reports whether a wait ends without a completion, and Wake whether a
	// wake-up, or a parker's call, comes later.
	Wait, Wake func() bool
	// Park reports whether the parker fails.
	Park func() bool
}

// Fate is what becomes of one operation.
type Fate struct {
	Errno   syscall.Errno // it ends with that after a while, and has done nothing
	Unasked bool          // it ends with ECANCELED, which nobody asked for
	Short   bool          // it transfers half
	Late    bool          // its completion appears later than its end
	Stale   bool          // its completion comes again
	// Lost is for a cancellation that says so, with Errno or success, and a
	// linked timeout that fires: what they are for waits on.
	Lost bool
}

// planned is how long something takes that does not happen at once.
const planned = 6

// plan applies the plan to an operation. The caller holds mu.
func (k *Kernel) plan(o *op) {
	if k.o.Plan.Op == nil {
		return
	}
	p, t := k.o.Plan.Op(&o.sqe), &o.fate
	if p == (Fate{}) {
		return
	}
	t.lost = p.Lost
	t.half = p.Short
	if p.Errno != 0 {
		t.errno = p.Errno
	}
	if p.Errno != 0 || p.Unasked || p.Short || p.Stale {
		t.steps += planned // its buffer is the kernel's, and another's completion may come first
	}
	if p.Unasked {
		t.exit, t.exitAfter = true, planned/2
	}
	if p.Late {
		t.late, t.lateBy = true, time.Millisecond
	}
	t.stale = t.stale || p.Stale
}

// length returns how many of n bytes an operation transfers.
func (o *op) length(n int) int {
	switch {
	case o.fate.half && n > 1:
		n = halfOf(n)
	case o.fate.short && n > 1:
		n = 1 + o.fate.IntN(n-1)
	default:
		return n
	}
	o.ring.k.trace.count("short")
	return n
}

// halfOf leaves whole blocks, as direct transfers do.
func halfOf(n int) int {
	const block = 4096
	if n > block && n%block == 0 {
		return n / block / 2 * block
	}
	return n / 2
}
