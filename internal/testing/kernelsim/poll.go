// SPDX-License-Identifier: MIT

package kernelsim

import (
	"syscall"

	"github.com/ringside-io/ringside/uring"
)

// EventShift: the result of each event of a multishot poll is POLLIN and, from
// this bit on, how many events of that operation came before.
const EventShift = 4

// pollEvent reports that there is data. Like the kernel's, a multishot poll
// ends when the completion queue is full.
func (k *Kernel) pollEvent(o *op) {
	if o.state != waiting {
		return
	}
	res := 1 | o.events<<EventShift
	switch {
	case !o.stream():
		k.finish(o, 1)
	case o.fate.noBuffers && o.events > 0:
		k.finish(o, -int32(syscall.ENOBUFS))
	case o.ring.full():
		k.note("full stream", o, res)
		k.finish(o, res)
	default:
		o.events++
		k.note("event", o, res)
		k.post(o, res, uring.CQEMore)
	}
}
