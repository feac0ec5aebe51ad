// SPDX-License-Identifier: MIT

package kernelsim

import "github.com/ringside-io/ringside/internal/abi"

// Bugs are faults that no kernel has. They show that a test would find them. Each is the number of
// the occasion, counted from 1, at which it happens; 0 means never. Operations on streams are not
// affected.
type Bugs struct {
	Drop      int // this completion of an operation with a tag never appears
	Twice     int // this completion appears twice
	Touch     int // the buffer of this read is overwritten after its completion, by Mend
	LoseWakes int // from this one on, wake-ups and parkers' calls are lost

	Untagged bool // include operations without a tag
}

type bugState struct {
	left Bugs
	owed []func() // the work of Mend
}

// due counts an occasion.
func due(left *int) bool {
	if *left == 0 {
		return false
	}
	*left--
	return *left == 0
}

// misplace applies the bugs to a completion, and reports whether the completion must not appear
// now.
func (k *Kernel) misplace(o *op, p posted) bool {
	if o.tag() == 0 && !k.o.Bugs.Untagged || o.multishot() {
		return false
	}
	b := &k.bugs.left
	if due(&b.Twice) {
		k.note("bug: twice", o, p.cqe.Res)
		o.ring.push(p)
	}
	if o.e.Opcode == abi.IORING_OP_READ && p.cqe.Res > 0 && due(&b.Touch) {
		k.note("bug: touch", o, p.cqe.Res)
		buf := o.memory()
		k.bugs.owed = append(k.bugs.owed, func() { buf[0] ^= 0xff })
	}
	if !due(&b.Drop) {
		return false
	}
	k.note("bug: drop", o, p.cqe.Res)
	k.bugs.owed = append(k.bugs.owed, func() { o.ring.push(p) })
	return true
}

// loseWake reports whether a wake-up is lost.
func (k *Kernel) loseWake(call func()) bool {
	b := &k.bugs.left.LoseWakes
	if *b == 0 {
		return false
	}
	if *b > 1 {
		*b--
		return false
	}
	k.trace.add(event{what: "bug: lost wake-up"})
	k.bugs.owed = append(k.bugs.owed, call)
	return true
}

// Mend ends the bugs and delivers the withheld completions, so that the test can end.
func (k *Kernel) Mend() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.bugs.left = Bugs{}
	for _, f := range k.bugs.owed {
		f()
	}
	k.bugs.owed = nil
}
