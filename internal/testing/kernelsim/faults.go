// SPDX-License-Identifier: MIT

package kernelsim

import (
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// Faults are probabilities from 0 to 1 of the kernel's permitted misbehaviour. With the zero value
// every operation completes at once and in full. Each field has a counterpart in [Fault] or [Plan],
// which select one occasion instead of a probability.
type Faults struct {
	// Of an operation.
	Delay       float64 // it takes some steps, or some milliseconds
	Late        float64 // its completion appears later than its end
	Short       float64 // it transfers less than it could
	Interrupted float64 // it ends with EINTR
	Again       float64 // it ends with EAGAIN
	Broken      float64 // it ends with EIO
	NoSpace     float64 // a write ends with ENOSPC
	NoBuffers   float64 // a multishot operation ends with ENOBUFS
	Exit        float64 // it ends with ECANCELED without a cancellation, as if its submitter's thread had exited

	// Of a cancellation.
	LostCancel float64 // the result is EALREADY, ENOENT or success, and the operation continues
	Disturbed  float64 // the cancelled operation ends with EINTR instead of ECANCELED
	LostLink   float64 // a LINK_TIMEOUT that fires ends with EALREADY or ETIME, and the operation continues
	BadLink    float64 // a LINK_TIMEOUT ends with EINVAL, which cancels its operation

	// Of a submission.
	Refuse  float64 // EAGAIN, EBUSY or ENOMEM, several times in a row
	Partial float64 // not all entries are taken
	Split   float64 // and the boundary may be inside a chain: no memory for requests
	Fatal   float64 // EBADF from now on

	// Of a wait.
	Return   float64 // a wait ends without a completion (EINTR)
	LateWake float64 // a wake-up, or a call of a parker, comes later
	Spurious float64 // a wake-up comes without a reason
	Unparked float64 // the parker fails

	// Of completions.
	Stale float64 // one appears again, after its operation is over
}

// Plan selects single faults, where [Faults] are random. Its functions are called with the kernel's
// lock held and may be nil.
type Plan struct {
	// Op is called for each operation that begins, and for each further completion of
	// a multishot operation on a descriptor. The kernel's own operations are left out.
	Op func(e *uring.RawSQE) Fault
	// Submit returns how many of n SQEs are taken, or the errno with which none is. split reports
	// that the submission may end inside a chain. After EBADF the ring is broken for good.
	Submit func(n int) (take int, split bool, errno syscall.Errno)
	// Wait reports whether a wait ends without a completion. Wake reports whether a wake-up, or a
	// call of a parker, comes later. Overflow reports whether a completion finds the queue full.
	Wait, Wake, Overflow func() bool
	// Park reports whether the parker fails.
	Park func() bool
}

// Fault is the fault of one operation.
type Fault struct {
	Errno   syscall.Errno // it ends with this errno after a while, without an effect
	Unasked bool          // it ends with ECANCELED without a cancellation
	Short   bool          // it transfers half
	Late    bool          // its completion appears later than its end
	Stale   bool          // its completion comes again
	// Lost is for a cancellation or an update that reports Errno or success and has no
	// effect (one of all operations, unless Errno is EALREADY, misses one of them only), and for a linked timeout that fires without one.
	Lost bool
}

// plannedSteps is the length of a planned delay in steps, and moment its length in time.
const (
	plannedSteps = 6
	moment       = 300 * time.Microsecond
)

func happens(f func() bool) bool { return f != nil && f() }

// effect is the behaviour of one operation, drawn from the Faults and changed by the plan.
type effect struct {
	dice
	steps     int           // before it ends
	wait      time.Duration // and the time before these steps
	late      bool
	lateBy    time.Duration // 0: by steps
	short     bool          // a random length
	half      bool
	errno     syscall.Errno // with which it ends
	exit      bool          // ECANCELED, exitAfter steps from its start
	exitAfter int
	noBuffers bool
	disturbed bool
	stale     bool
	lost      bool
}

// draw draws the faults of the next operation on an object. The caller holds mu.
func (k *Kernel) draw(on *object) effect {
	d := k.dice(uint64(on.fd), on.count)
	on.count++
	f := &k.o.Faults
	t := effect{dice: d}
	if d.hit(f.Delay) {
		t.steps = 1 + d.IntN(20)
		if d.IntN(4) == 0 {
			t.wait = d.briefly()
		}
	}
	if t.late = d.hit(f.Late); t.late && d.IntN(2) == 0 {
		t.lateBy = d.briefly()
	}
	t.short = d.hit(f.Short)
	for _, e := range []struct {
		p     float64
		errno syscall.Errno
	}{{f.Interrupted, syscall.EINTR}, {f.Again, syscall.EAGAIN}, {f.Broken, syscall.EIO}, {f.NoSpace, syscall.ENOSPC}} {
		if d.hit(e.p) {
			t.errno = e.errno
		}
	}
	t.exit, t.exitAfter = d.hit(f.Exit), d.IntN(10)
	t.noBuffers = d.hit(f.NoBuffers)
	t.disturbed = d.hit(f.Disturbed)
	t.stale = d.hit(f.Stale)
	return t
}

// plan applies the plan to an operation. The caller holds mu.
func (k *Kernel) plan(o *op) {
	if k.o.Plan.Op == nil {
		return
	}
	p, t := k.o.Plan.Op(&o.e), &o.effect
	if p == (Fault{}) {
		return
	}
	t.lost = p.Lost || p.Errno != 0 && (o.e.Opcode == abi.IORING_OP_ASYNC_CANCEL || o.e.Opcode == abi.IORING_OP_POLL_REMOVE)
	t.half = p.Short
	if p.Errno != 0 {
		t.errno = p.Errno
	}
	if p.Errno != 0 || p.Unasked || p.Short || p.Stale {
		t.steps += plannedSteps // its buffer belongs to the kernel, and another operation may complete first
	}
	if p.Unasked {
		t.exit, t.exitAfter = true, plannedSteps/2
	}
	if p.Late {
		t.late, t.lateBy = true, moment
	}
	t.stale = t.stale || p.Stale
}

// length returns the number of bytes, of n, that an operation transfers.
func (o *op) length(n int) int {
	const block = 4096
	switch {
	case n <= 1:
		return n
	case o.effect.half && n > block && n%block == 0 && !o.socket(): // whole blocks, as in direct transfers
		n = n / block / 2 * block
	case o.effect.half:
		n /= 2
	case o.effect.short:
		n = 1 + o.effect.IntN(n-1)
	default:
		return n
	}
	o.ring.base().k.trace.count("short")
	return n
}

// dice makes the random decisions about one object.
type dice struct{ *rand.Rand }

// These are kinds of things with random decisions, besides the objects, which are identified by
// their descriptor.
const (
	ofKernel = iota + 1<<32
	ofSubmission
	ofWait
	ofWake
	ofCancel
)

// dice returns the random decisions for the count-th use of an object.
func (k *Kernel) dice(thing, count uint64) dice {
	return dice{rand.New(rand.NewPCG(mix(k.o.Seed), mix(mix(thing)+count)))}
}

// mix spreads a small number over 64 bits.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// hit reports whether something with the given probability happens. It always uses one random
// number, so that one fault does not shift the others.
func (d dice) hit(p float64) bool { return d.Float64() < p }

// oneOf picks one of the values.
func oneOf[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// briefly returns a time of up to three milliseconds.
func (d dice) briefly() time.Duration { return time.Duration(d.IntN(3_000_000)) }
