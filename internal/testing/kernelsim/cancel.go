// SPDX-License-Identifier: MIT

package kernelsim

import (
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// cancel runs an ASYNC_CANCEL and returns its result.
func (k *Kernel) cancel(by *op) int32 {
	const other = abi.IORING_ASYNC_CANCEL_FD | abi.IORING_ASYNC_CANCEL_ANY | abi.IORING_ASYNC_CANCEL_OP
	d := k.dice(ofCancel, k.cancels)
	k.cancels++
	all := by.e.OpFlags&(abi.IORING_ASYNC_CANCEL_ALL|abi.IORING_ASYNC_CANCEL_ANY) != 0
	among := k.live.byData[by.e.Addr]
	if by.e.OpFlags&other != 0 {
		among = k.live.all
	}
	among = slices.DeleteFunc(slices.Clone(among), func(o *op) bool {
		return o.ring != by.ring || o == by || o.state == linked || o.state == over || !o.matches(&by.e)
	})
	if !all {
		if len(among) == 0 {
			return -int32(syscall.ENOENT)
		}
		return k.cancelOne(among[0], by, d)
	}
	if n := len(among); n > 1 && by.effect.lost && by.effect.errno != syscall.EALREADY {
		// Before Linux 6.9 an operation that another thread retries at this moment is in no list:
		// the newest one if the plan says ENOENT, the oldest one otherwise.
		missed := 0
		if by.effect.errno == syscall.ENOENT {
			missed = n - 1
		}
		k.note("lost cancel", among[missed], 0)
		among = slices.Delete(among, missed, missed+1)
		by.effect.lost, by.effect.errno = false, 0
	}
	found := int32(0)
	for _, o := range among {
		if k.cancelOne(o, by, d) == 0 {
			found++
		}
	}
	return found
}

// cancelOne is cancel for one operation.
func (k *Kernel) cancelOne(o, by *op, d dice) int32 {
	result := k.result(o)
	switch {
	case by.effect.lost:
		k.note("lost cancel", o, 0)
		return -int32(by.effect.errno)
	case o.state == waiting && d.hit(k.o.Faults.LostCancel):
		k.note("lost cancel", o, 0)
		return -int32(oneOf(d, syscall.EALREADY, syscall.ENOENT, 0))
	case o.state == waiting:
		result.Asked++
		k.stop(o)
		return 0
	case o.state == running && o.effect.disturbed:
		result.Asked++
		o.effect.errno = syscall.EINTR
	}
	return -int32(syscall.EALREADY)
}

// matches reports whether a cancellation applies to an operation.
func (o *op) matches(by *uring.RawSQE) bool {
	flags := by.OpFlags
	byData := flags&(abi.IORING_ASYNC_CANCEL_FD|abi.IORING_ASYNC_CANCEL_ANY|abi.IORING_ASYNC_CANCEL_OP) == 0
	switch {
	case flags&abi.IORING_ASYNC_CANCEL_ANY != 0:
		return true
	case flags&abi.IORING_ASYNC_CANCEL_FD != 0 && o.e.Fd != by.Fd,
		flags&abi.IORING_ASYNC_CANCEL_OP != 0 && uint32(o.e.Opcode) != by.Len,
		(byData || flags&abi.IORING_ASYNC_CANCEL_USERDATA != 0) && o.e.UserData != by.Addr:
		return false
	}
	return true
}

// stop ends a waiting operation. On a direct ring that may take some steps, as for an operation in
// a worker thread. An operation that waits for its file ends at once.
func (k *Kernel) stop(o *op) {
	o.leave()
	o.state = ending
	errno := syscall.ECANCELED
	if o.effect.disturbed {
		errno = syscall.EINTR
	}
	if o.ring.base().hooked {
		k.finish(o, -int32(errno))
		return
	}
	k.spread(k.order.IntN(10), o.scribble, func() { k.finish(o, -int32(errno)) })
}

// change runs a POLL_REMOVE, which may also change a poll, and returns its result.
func (k *Kernel) change(by *op) int32 {
	if by.effect.lost {
		k.trace.count("lost change")
		return -int32(by.effect.errno)
	}
	const update = abi.IORING_POLL_UPDATE_EVENTS | abi.IORING_POLL_UPDATE_USER_DATA
	for _, o := range k.live.byData[by.e.Addr] {
		if o.ring != by.ring || o.e.Opcode != abi.IORING_OP_POLL_ADD || o.state == linked {
			continue
		}
		switch {
		case o.state != waiting:
			return -int32(syscall.EALREADY)
		case by.e.Len&update == 0:
			k.stop(o)
			return 0
		}
		if by.e.Len&abi.IORING_POLL_UPDATE_USER_DATA != 0 {
			k.live.rename(o, by.e.Off)
		}
		if by.e.Len&abi.IORING_POLL_UPDATE_EVENTS != 0 {
			o.e.OpFlags = o.e.OpFlags&^0xffff | by.e.OpFlags&0xffff
		}
		o.rewatch()
		return 0
	}
	return -int32(syscall.ENOENT)
}

// armTimeout starts the timer of a linked timeout.
func (k *Kernel) armTimeout(o *op) {
	if o.timeout != nil {
		o.timeout.state = waiting
		o.timeout.timer = k.later(o.timeout.span, func() { k.expire(o) })
	}
}

// expire fires a linked timeout.
func (k *Kernel) expire(o *op) {
	t := o.timeout
	if t == nil || t.state == over || o.state == over {
		return
	}
	o.timeout = nil
	errno := syscall.EALREADY
	switch {
	case t.effect.lost:
		k.note("lost timeout", o, 0)
		errno = t.effect.errno
	case o.state == waiting && o.effect.hit(k.o.Faults.LostLink):
		k.note("lost timeout", o, 0)
		errno = oneOf(o.effect.dice, syscall.EALREADY, syscall.ETIME)
	case o.state == waiting:
		errno = syscall.ETIME
		k.result(o).Asked++
		k.stop(o)
	case o.state == running && o.effect.disturbed:
		k.result(o).Asked++
		o.effect.errno = syscall.EINTR
	}
	k.finish(t, -int32(errno))
}
