// SPDX-License-Identifier: MIT

package kernelsim

import (
	"math/rand/v2"
	"syscall"
	"time"
)

// Faults are probabilities from 0 to 1 with which the kernel does what it may
// do. The zero value is a kernel that completes everything at once and in full.
type Faults struct {
	// Of an operation.
	Delay       float64 // it takes some steps, or some milliseconds
	Late        float64 // its completion appears later than its end
	Short       float64 // it transfers less than it could
	Interrupted float64 // it ends with EINTR
	Again       float64 // it ends with EAGAIN
	Broken      float64 // it ends with EIO
	NoSpace     float64 // a write ends with ENOSPC
	NoBuffers   float64 // a stream ends with ENOBUFS
	Exit        float64 // it ends with ECANCELED unasked: its submitter's thread has exited

	// Of a cancellation.
	LostCancel float64 // EALREADY, ENOENT or success, and the operation waits on
	Disturbed  float64 // what is cancelled ends with EINTR instead of ECANCELED
	LostLink   float64 // a LINK_TIMEOUT that fires answers EALREADY or ETIME, and the operation waits on
	BadLink    float64 // a LINK_TIMEOUT answers EINVAL, which cancels its operation

	// Of a submission.
	Refuse  float64 // EAGAIN, EBUSY or ENOMEM, several times in a row
	Partial float64 // not all entries are taken
	Split   float64 // and the boundary may be inside a chain: no memory for requests
	Fatal   float64 // EBADF from here on

	// Of a wait.
	Return   float64 // a wait ends without a completion (EINTR)
	LateWake float64 // a wake-up, or a parker's call, comes later
	Spurious float64 // one comes that nobody asked for
	Unparked float64 // the parker fails

	// Of completions.
	Stale float64 // one comes again, after its operation is over
}

// dice are the random decisions about one thing.
type dice struct{ *rand.Rand }

// Kinds of things that dice are thrown for, beside the objects, which have
// their descriptor.
const (
	ofKernel = iota + 1<<32
	ofSubmission
	ofWait
	ofWake
	ofCancel
)

// dice returns those for the count-th use of a thing.
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

// hit reports whether something of the given probability happens. It uses one
// number whatever the answer, so that one fault does not shift the others.
func (d dice) hit(p float64) bool { return d.Float64() < p }

// oneOf picks.
func oneOf[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// briefly returns a time of up to three milliseconds.
func (d dice) briefly() time.Duration { return time.Duration(d.IntN(3_000_000)) }

// fate is what will happen to one operation.
type fate struct {
	dice
	steps     int           // before it ends
	wait      time.Duration // and before these
	late      bool
	lateBy    time.Duration // 0: by steps
	short     bool
	errno     syscall.Errno // with which it ends
	exit      bool          // it is cancelled unasked, exitAfter steps from its start
	exitAfter int
	noBuffers bool
	disturbed bool
	stale     bool
	half      bool // as a plan says
	lost      bool
}

// fate decides about the next operation on an object.
func (k *Kernel) fate(on *object) fate {
	d := k.dice(uint64(on.fd), on.count)
	on.count++
	f := &k.o.Faults
	t := fate{dice: d}
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
