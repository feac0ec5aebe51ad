// SPDX-License-Identifier: MIT

package kernelsim

import "syscall"

// cancel carries out an ASYNC_CANCEL by user data and returns its result.
func (k *Kernel) cancel(by *op) int32 {
	d := k.dice(ofCancel, k.cancels)
	k.cancels++
	for _, o := range k.live.byData[by.sqe.Raw().Addr] {
		if o.ring != by.ring || o == by || o.state == linked {
			continue
		}
		out := k.outcome(o)
		switch {
		case by.fate.lost:
			k.note("lost cancel", o, 0)
			return -int32(by.fate.errno)
		case o.state == waiting && d.hit(k.o.Faults.LostCancel):
			k.note("lost cancel", o, 0)
			return -int32(oneOf(d, syscall.EALREADY, syscall.ENOENT, 0))
		case o.state == waiting:
			out.Asked++
			k.stop(o)
			return 0
		case o.state == running && o.fate.disturbed:
			out.Asked++
			o.fate.errno = syscall.EINTR
		}
		return -int32(syscall.EALREADY)
	}
	return -int32(syscall.ENOENT)
}

// stop ends an operation that waits.
func (k *Kernel) stop(o *op) {
	o.leave()
	o.state = ending
	errno := syscall.ECANCELED
	if o.fate.disturbed {
		errno = syscall.EINTR
	}
	k.spread(k.order.IntN(10), o.scribble, func() { k.finish(o, -int32(errno)) })
}

// armTimeout starts the clock of a linked timeout.
func (k *Kernel) armTimeout(o *op) {
	if o.timeout != nil {
		o.timeout.state = waiting
		o.timeout.timer = k.later(o.timeout.span, func() { k.expire(o) })
	}
}

// expire lets a linked timeout fire.
func (k *Kernel) expire(o *op) {
	t := o.timeout
	if t == nil || t.state == over || o.state == over {
		return
	}
	o.timeout = nil
	errno := syscall.EALREADY
	switch {
	case t.fate.lost:
		k.note("lost timeout", o, 0)
		errno = t.fate.errno
	case o.state == waiting && o.fate.hit(k.o.Faults.LostLink):
		k.note("lost timeout", o, 0)
		errno = oneOf(o.fate.dice, syscall.EALREADY, syscall.ETIME)
	case o.state == waiting:
		errno = syscall.ETIME
		k.outcome(o).Asked++
		k.stop(o)
	case o.state == running && o.fate.disturbed:
		k.outcome(o).Asked++
		o.fate.errno = syscall.EINTR
	}
	k.finish(t, -int32(errno))
}
