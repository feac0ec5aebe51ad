// SPDX-License-Identifier: MIT

package kernelsim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// op is an operation of the kernel.
type op struct {
	ring   front
	e      uring.RawSQE
	state  state
	effect effect
	on     *object
	place  int // index in the list of operations in flight

	next    *op           // the rest of its chain
	timeout *op           // linked timeout
	span    time.Duration // of a timeout
	timer   *time.Timer
	shots   int32 // completions so far, of a multishot operation

	flags    uring.CQEFlags // of the last completion
	overflow bool           // the last completion finds the queue full

	held int32       // with a [Host]: the duplicate of the SQE's descriptor, a negative errno, or 0
	desc *descriptor // on a descriptor of the process, below package uring
}

// state is the state of an operation.
type state int

const (
	linked  state = iota // the previous operation of the chain has not ended
	running              // it cannot be stopped
	waiting              // waiting for data or a time
	ending               // decided, but not yet done
	over
)

func (s state) String() string {
	return [...]string{"linked", "running", "waiting", "ending", "over"}[s]
}

func (o *op) code() uring.Op { return uring.Op(o.e.Opcode) }

func (o *op) tag() uint64 { return o.e.Addr3 }

func (o *op) String() string {
	return fmt.Sprintf("%v of descriptor %d, user data %x, tag %d", o.code(), o.e.Fd, o.e.UserData, o.tag())
}

// multishot reports whether the operation may complete several times.
func (o *op) multishot() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_POLL_ADD:
		return o.e.Len&abi.IORING_POLL_ADD_MULTI != 0
	case abi.IORING_OP_RECV:
		return o.e.Ioprio&abi.IORING_RECV_MULTISHOT != 0
	case abi.IORING_OP_ACCEPT:
		return o.e.Ioprio&abi.IORING_ACCEPT_MULTISHOT != 0
	}
	return false
}

// transfers reports whether the operation reads or writes a file, in a worker thread or
// a device.
func (o *op) transfers() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED:
		return true
	}
	return false
}

func (o *op) socket() bool {
	return o.e.Opcode == abi.IORING_OP_RECV || o.e.Opcode == abi.IORING_OP_SEND
}

// fills reports whether the kernel writes into memory that the SQE names.
func (o *op) fills() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED:
		return true
	case abi.IORING_OP_RECV:
		return o.e.Flags&abi.IOSQE_BUFFER_SELECT == 0
	}
	return false
}

// empties reports whether the kernel reads memory that the SQE names.
func (o *op) empties() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED, abi.IORING_OP_SEND:
		return true
	}
	return false
}

// moves reports whether the operation uses a buffer of the SQE.
func (o *op) moves() bool { return o.fills() || o.empties() }

// owns reports whether the operation has something for which its user must wait: memory, or
// connections.
func (o *op) owns() bool {
	return o.state != over && (o.moves() || o.group() != nil || o.e.Opcode == abi.IORING_OP_ACCEPT)
}

// memory returns the operation's buffer.
func (o *op) memory() []byte {
	return o.ring.base().k.o.Memory(o.e.Addr, int(o.e.Len))
}

// uses reports whether the operation uses the memory. If so the operation no longer refers to it,
// because the memory is gone.
func (o *op) uses(addr uint64, size int) bool {
	overlaps := func(from uint64, n uint32) bool { return from < addr+uint64(size) && addr < from+uint64(n) }
	if o.moves() && o.e.Len > 0 && overlaps(o.e.Addr, o.e.Len) {
		o.ring.base().k.unclaimPages(o)
		o.e.Len = 0
		return true
	}
	if g := o.group(); g != nil && slices.ContainsFunc(g.has, func(p provided) bool { return overlaps(p.addr, p.n) }) {
		g.has = nil
		return true
	}
	return false
}

// live has the operations that have not ended: unordered, and by user data.
type live struct {
	all    []*op
	byData map[uint64][]*op
}

func (l *live) add(o *op) {
	if l.byData == nil {
		l.byData = make(map[uint64][]*op)
	}
	o.place = len(l.all)
	l.all = append(l.all, o)
	l.byData[o.e.UserData] = append(l.byData[o.e.UserData], o)
}

func (l *live) remove(o *op) {
	last := len(l.all) - 1
	l.all[o.place] = l.all[last]
	l.all[o.place].place = o.place
	l.all[last] = nil
	l.all = l.all[:last]
	l.forget(o)
}

// forget removes an operation from the list of its user data.
func (l *live) forget(o *op) {
	left := slices.DeleteFunc(l.byData[o.e.UserData], func(x *op) bool { return x == o })
	if l.byData[o.e.UserData] = left; len(left) == 0 {
		delete(l.byData, o.e.UserData)
	}
}

// rename changes an operation's user data.
func (l *live) rename(o *op, data uint64) {
	l.forget(o)
	o.e.UserData = data
	l.byData[data] = append(l.byData[data], o)
}

// claim adds an operation to live and checks that no other operation has its buffer.
func (k *Kernel) claim(o *op) {
	k.result(o).Submitted++
	k.live.add(o)
	var said *op
	for page := range o.pages {
		for _, x := range k.pages[page] {
			if x != said && x.overlaps(o) && (o.fills() || x.fills()) {
				k.violation("the buffer of %v is still that of %v", o, x)
				said = x
			}
		}
		k.pages[page] = append(k.pages[page], o)
	}
}

// unclaim removes an operation from live.
func (k *Kernel) unclaim(o *op) {
	k.live.remove(o)
	k.unclaimPages(o)
}

func (k *Kernel) unclaimPages(o *op) {
	for page := range o.pages {
		left := slices.DeleteFunc(k.pages[page], func(x *op) bool { return x == o })
		if k.pages[page] = left; len(left) == 0 {
			delete(k.pages, page)
		}
	}
}

// pages yields the pages of memory that the buffer touches.
func (o *op) pages(yield func(page uint64) bool) {
	const bits = 12
	if !o.moves() || o.e.Len == 0 {
		return
	}
	for page := o.e.Addr >> bits; page <= (o.e.Addr+uint64(o.e.Len)-1)>>bits; page++ {
		if !yield(page) {
			return
		}
	}
}

// overlaps reports whether two operations share memory.
func (o *op) overlaps(x *op) bool {
	return o.e.Addr < x.e.Addr+uint64(x.e.Len) && x.e.Addr < o.e.Addr+uint64(o.e.Len)
}

// timespec reads the time of a timeout, which the kernel does when it takes the SQE.
func (k *Kernel) timespec(o *op) time.Duration {
	p := k.o.Memory(o.e.Addr, 16)
	return time.Duration(binary.NativeEndian.Uint64(p))*time.Second + time.Duration(binary.NativeEndian.Uint64(p[8:]))
}

// start begins an operation. The caller holds mu.
func (k *Kernel) start(o *op) {
	if o.ring.base().closed {
		k.finish(o, -int32(syscall.ECANCELED))
		return
	}
	if !o.ring.base().limits.allows(&o.e) {
		k.finish(o, -int32(syscall.EACCES))
		return
	}
	on := k.nothing()
	switch o.e.Opcode {
	case abi.IORING_OP_NOP, abi.IORING_OP_TIMEOUT, abi.IORING_OP_LINK_TIMEOUT, abi.IORING_OP_ASYNC_CANCEL, abi.IORING_OP_POLL_REMOVE:
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED, abi.IORING_OP_FSYNC,
		abi.IORING_OP_POLL_ADD, abi.IORING_OP_RECV, abi.IORING_OP_SEND, abi.IORING_OP_ACCEPT:
		on = k.object(o)
	}
	if on == nil {
		k.finish(o, -int32(syscall.EBADF))
		return
	}
	o.on = on
	if o.ring.base().broken() {
		o.hold()
	}
	o.effect = k.draw(on)
	k.plan(o)
	if errno := on.takes(o); errno != 0 {
		k.finish(o, -int32(errno))
		return
	}
	switch o.e.Opcode {
	case abi.IORING_OP_NOP:
		k.proceed(o)
	case abi.IORING_OP_ASYNC_CANCEL:
		k.finish(o, k.cancel(o))
	case abi.IORING_OP_POLL_REMOVE:
		k.finish(o, k.change(o))
	case abi.IORING_OP_TIMEOUT:
		o.timer = k.later(k.timespec(o), func() {
			if o.state == waiting {
				k.finish(o, -int32(syscall.ETIME))
			}
		})
		k.await(o)
	default:
		k.startOn(o)
	}
}

// startOn begins an operation on an object.
func (k *Kernel) startOn(o *op) {
	switch on := o.on; {
	case on.kind == isDescriptor:
		k.startDescriptor(o)
	case o.e.Opcode == abi.IORING_OP_POLL_ADD:
		on.polls = append(on.polls, o)
		k.await(o)
	case on.kind == isPipe:
		on.waiting = append(on.waiting, o)
		k.await(o)
	default:
		k.proceed(o)
	}
}

// await makes an operation wait for data or a time, with its possible faults.
func (k *Kernel) await(o *op) {
	o.state = waiting
	k.armTimeout(o)
	k.mayExit(o)
	steps, errno := o.effect.steps, o.effect.errno
	k.spread(steps, o.scribble, func() {
		switch {
		case o.state != waiting:
		case errno != 0 && errno != syscall.ENOSPC:
			o.leave()
			k.finish(o, -int32(errno))
		case o.e.Opcode == abi.IORING_OP_POLL_ADD:
			if o.on.sent > o.on.taken {
				k.pollEvent(o)
			}
		case o.e.Opcode == abi.IORING_OP_READ:
			k.serve(o.on)
		}
	})
}

// proceed runs an operation that only needs the device.
func (k *Kernel) proceed(o *op) {
	o.state = running
	k.armTimeout(o)
	k.mayExit(o)
	t := &o.effect
	switch {
	case t.wait > 0:
		k.later(t.wait, func() { k.spread(t.steps, o.scribble, func() { k.conclude(o) }) })
	case t.steps > 0:
		k.spread(t.steps, o.scribble, func() { k.conclude(o) })
	default:
		k.conclude(o)
	}
}

// mayExit cancels an operation some time later, as if the thread of its submitter had exited.
func (k *Kernel) mayExit(o *op) {
	if !o.effect.exit {
		return
	}
	k.soon(o.effect.exitAfter, func() {
		if o.state == running || o.state == waiting {
			o.leave()
			k.result(o).Unasked++
			k.note("exit", o, 0)
			k.finish(o, -int32(syscall.ECANCELED))
		}
	})
}

// conclude does the transfer of an operation on a file, and ends it.
func (k *Kernel) conclude(o *op) {
	if o.state != running {
		return
	}
	errno := o.effect.errno
	if errno == syscall.ENOSPC && o.e.Opcode != abi.IORING_OP_WRITE && o.e.Opcode != abi.IORING_OP_WRITE_FIXED {
		errno = 0
	}
	switch {
	case errno != 0:
		k.finish(o, -int32(errno))
	case o.e.Opcode == abi.IORING_OP_NOP:
		k.finish(o, 0)
	case o.on.kind == isHost:
		k.finish(o, k.askHost(o))
	case o.on.kind == isDescriptor:
		k.finish(o, k.transferDescriptor(o))
	default:
		k.finish(o, k.transfer(o))
	}
}

// transfer moves the bytes of a read or write of a file in memory.
func (k *Kernel) transfer(o *op) int32 {
	data := o.on.data
	data = data[min(o.e.Off, uint64(len(data))):]
	n := o.length(min(int(o.e.Len), len(data)))
	if n == 0 {
		return 0
	}
	p := o.memory()[:n]
	if o.fills() {
		copy(p, data)
	} else {
		copy(data, p)
	}
	k.result(o).Data = append([]byte(nil), p...)
	return int32(n)
}

// scribble writes garbage into a part of the memory that the operation will fill. The memory
// belongs to the kernel until the operation ends.
func (o *op) scribble() {
	if o.state == over {
		return
	}
	k := o.ring.base().k
	var p []byte
	switch g := o.group(); {
	case o.fills() && o.e.Len > 0:
		p = o.memory()
	case g != nil && o.desc != nil && len(g.has) > 0:
		p = g.has[k.order.IntN(len(g.has))].memory()
	default:
		return
	}
	from := k.order.IntN(len(p))
	p = p[from : from+k.order.IntN(min(len(p)-from, 16))+1]
	for i := range p {
		p[i] = byte(k.order.Uint32())
	}
}

// leave removes an operation from the lists of waiting ones.
func (o *op) leave() {
	if o.on == nil {
		return
	}
	is := func(x *op) bool { return x == o }
	o.on.waiting = slices.DeleteFunc(o.on.waiting, is)
	o.on.polls = slices.DeleteFunc(o.on.polls, is)
}

// shot completes a multishot operation, and reports whether the operation continues. Like the
// kernel's it ends with this completion if the completion queue is full.
func (k *Kernel) shot(o *op, res int32, flags uring.CQEFlags) bool {
	o.shots++
	if o.overflow = happens(k.o.Plan.Overflow); o.overflow || o.ring.full() {
		k.note("full stream", o, res)
		o.flags, o.overflow = flags, true
		k.finish(o, res)
		return false
	}
	k.note("event", o, res)
	k.post(o, res, flags|uring.CQEMore)
	return true
}

// finish ends an operation. Its memory is not used afterwards, and its completion appears.
func (k *Kernel) finish(o *op, res int32) {
	if o.state == over {
		return
	}
	o.state = over
	o.leave()
	o.drop()
	o.release()
	k.unclaim(o)
	if o.timer != nil {
		o.timer.Stop()
	}
	out := k.result(o)
	out.Ended++
	out.Res = res
	if res < 0 {
		k.trace.count(syscall.Errno(-res).Error())
	}
	k.note("end", o, res)
	if res < 0 || o.e.Flags&abi.IOSQE_CQE_SKIP_SUCCESS == 0 {
		o.overflow = o.overflow || happens(k.o.Plan.Overflow)
		k.post(o, res, o.flags)
	}
	if t := o.timeout; t != nil {
		k.finish(t, -int32(syscall.ECANCELED))
	}
	k.ended.Broadcast()
	k.goOn(o, res)
}

// goOn starts the operation linked to one that has ended, or cancels it.
func (k *Kernel) goOn(o *op, res int32) {
	next := o.next
	if next == nil {
		return
	}
	full := res >= 0 && (!o.moves() || res == int32(o.e.Len))
	if full || o.e.Flags&abi.IOSQE_IO_HARDLINK != 0 {
		k.soon(k.order.IntN(3), func() { k.start(next) })
		return
	}
	for next != nil {
		rest := next.next
		next.next = nil
		k.finish(next, -int32(syscall.ECANCELED))
		next = rest
	}
}

// post makes a completion appear, possibly later.
func (k *Kernel) post(o *op, res int32, flags uring.CQEFlags) {
	p := posted{cqe: uring.CQE{UserData: o.e.UserData, Res: res, Flags: flags}, stale: o.effect.stale && !o.multishot(),
		overflow: o.overflow, accepted: o.e.Opcode == abi.IORING_OP_ACCEPT && res >= 0}
	if res == -int32(syscall.ECANCELED) || res == -int32(syscall.EINTR) {
		p.stale = false // its user data may have been reused
	}
	push := func() {
		o.unchanged()
		o.ring.push(p)
	}
	switch {
	case k.misplace(o, p):
	case !o.effect.late || o.multishot():
		push()
	case o.effect.lateBy > 0:
		k.trace.count("late")
		k.later(o.effect.lateBy, push)
	default:
		k.soon(1+k.order.IntN(20), push)
	}
}
