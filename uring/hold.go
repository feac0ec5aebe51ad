// SPDX-License-Identifier: MIT

package uring

// Hold has the places of the last n completions that were reaped not given back
// to the kernel. Completions do not change by that, and there are n places less
// for them in the CQ; n is at most half of it.
//
// It makes one enter run more task work: kernels since 6.13 run 20 pieces of what
// a ring with DeferTaskrun has put off, or as many as the enter asks completions
// for, if those are more. To ask for more than there are would be to wait for
// them; but places that are held back count, so that a wait for none but these
// ends at once, with all the work done up to that number. On a ring with IOPoll,
// where they would hide that nothing has come, Hold does nothing.
func (r *Ring) Hold(n int) {
	if r.setup&SetupIOPoll != 0 {
		return
	}
	r.cq.hold = uint32(min(max(n, 0), int(r.cq.entries/2)))
	if r.cq.held > r.cq.hold {
		r.cq.letGo()
	}
}

// Held returns how many places are held back by now.
func (r *Ring) Held() int { return int(r.cq.held) }

// letGo gives all places back.
func (c *cq) letGo() {
	c.held = 0
	c.head.Store(c.next)
}
