// SPDX-License-Identifier: MIT

package kernelsim

import (
	"encoding/binary"
	"slices"
	"syscall"
	"time"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// op is an operation that the kernel holds.
type op struct {
	ring  *Ring
	sqe   uring.SQE
	state state
	fate  fate
	on    *object
	place int   // among those that are alive
	held  int32 // the descriptor in the place of the entry's, a negative errno, or 0: see hold

	next    *op           // the rest of its chain
	timeout *op           // a linked timeout
	span    time.Duration // of a timeout
	timer   *time.Timer
	events  int32 // of a stream

	finalFlags uring.CQEFlags // of the last completion of a stream
}

// state is where an operation stands.
type state int

const (
	linked  state = iota // the one before has not ended
	running              // it cannot be stopped
	waiting              // for data or a time
	ending               // decided, not yet done
	over
)

func (s state) String() string {
	return [...]string{"linked", "running", "waiting", "ending", "over"}[s]
}

func (o *op) code() uring.Op { return uring.Op(o.sqe.Raw().Opcode) }

func (o *op) tag() uint64 { return o.sqe.Raw().Addr3 }

func (o *op) internal() bool { return o.on != nil && o.on.kind == isWake }

func (o *op) stream() bool {
	return o.sqe.Raw().Opcode == abi.IORING_OP_POLL_ADD && o.sqe.Raw().Len&abi.IORING_POLL_ADD_MULTI != 0 ||
		o.sqe.Raw().Opcode == abi.IORING_OP_READ_MULTISHOT
}

// moves reports whether the operation uses a buffer.
func (o *op) moves() bool {
	return o.sqe.Raw().Opcode == abi.IORING_OP_READ || o.sqe.Raw().Opcode == abi.IORING_OP_WRITE
}

// memory returns the operation's buffer.
func (o *op) memory() []byte {
	if o.on != nil && o.on.kind == isWake {
		return o.ring.wakeBuf
	}
	return o.ring.k.o.Memory(o.sqe.Raw().Addr, int(o.sqe.Raw().Len))
}

// claim makes an operation alive and checks that its buffer belongs to nobody
// else.
func (k *Kernel) claim(o *op) {
	k.outcome(o).Submitted++
	k.live.add(o)
	for page := range o.pages {
		for _, x := range k.pages[page] {
			if x.overlaps(o) && (o.sqe.Raw().Opcode == abi.IORING_OP_READ || x.sqe.Raw().Opcode == abi.IORING_OP_READ) {
				k.violation("the buffer of user data %x, tag %d, is still that of user data %x, tag %d", o.sqe.Raw().UserData, o.tag(), x.sqe.Raw().UserData, x.tag())
			}
		}
		k.pages[page] = append(k.pages[page], o)
	}
}

// unclaim ends what claim began.
func (k *Kernel) unclaim(o *op) {
	k.live.remove(o)
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
	if !o.moves() || o.sqe.Raw().Len == 0 {
		return
	}
	for page := o.sqe.Raw().Addr >> bits; page <= (o.sqe.Raw().Addr+uint64(o.sqe.Raw().Len)-1)>>bits; page++ {
		if !yield(page) {
			return
		}
	}
}

// overlaps reports whether two operations share memory.
func (o *op) overlaps(x *op) bool {
	return o.sqe.Raw().Addr < x.sqe.Raw().Addr+uint64(x.sqe.Raw().Len) && x.sqe.Raw().Addr < o.sqe.Raw().Addr+uint64(o.sqe.Raw().Len)
}

// timespec reads the time of a timeout, as the kernel does when it takes the
// entry.
func (k *Kernel) timespec(o *op) time.Duration {
	p := k.o.Memory(o.sqe.Raw().Addr, 16)
	return time.Duration(binary.NativeEndian.Uint64(p))*time.Second + time.Duration(binary.NativeEndian.Uint64(p[8:]))
}

// start begins an operation. The caller holds mu.
func (k *Kernel) start(o *op) {
	if o.ring.closed {
		k.finish(o, -int32(syscall.ECANCELED))
		return
	}
	on := k.nothing()
	switch o.sqe.Raw().Opcode {
	case abi.IORING_OP_READ, abi.IORING_OP_WRITE, abi.IORING_OP_POLL_ADD, abi.IORING_OP_READ_MULTISHOT, abi.IORING_OP_FSYNC:
		on = k.object(o.sqe.Raw().Fd)
	}
	if on == nil {
		k.finish(o, -int32(syscall.EBADF))
		return
	}
	o.on = on
	if o.ring.broken() {
		o.hold()
	}
	if !o.internal() {
		o.fate = k.fate(on)
		k.plan(o)
	}
	if !on.takes(o.sqe.Raw().Opcode) {
		k.finish(o, -int32(syscall.EINVAL))
		return
	}
	switch o.sqe.Raw().Opcode {
	case abi.IORING_OP_NOP, abi.IORING_OP_READ, abi.IORING_OP_WRITE, abi.IORING_OP_FSYNC:
		if on.kind == isPipe || on.kind == isWake {
			on.waiting = append(on.waiting, o)
			k.await(o)
			return
		}
		k.proceed(o)
	case abi.IORING_OP_READ_MULTISHOT:
		if b := o.group(); b == nil || on.kind != isPipe {
			k.finish(o, -int32(syscall.EINVAL))
			return
		}
		on.waiting = append(on.waiting, o)
		k.await(o)
	case abi.IORING_OP_POLL_ADD:
		on.polls = append(on.polls, o)
		k.await(o)
	case abi.IORING_OP_TIMEOUT:
		o.timer = k.later(k.timespec(o), func() {
			if o.state == waiting {
				k.finish(o, -int32(syscall.ETIME))
			}
		})
		k.await(o)
	case abi.IORING_OP_ASYNC_CANCEL:
		k.finish(o, k.cancel(o))
	default:
		k.finish(o, -int32(syscall.EINVAL))
	}
}

// await lets an operation wait for data or a time, with what can happen to it
// meanwhile.
func (k *Kernel) await(o *op) {
	o.state = waiting
	k.armTimeout(o)
	if o.internal() {
		k.arrived(o.on)
		return
	}
	k.mayExit(o)
	steps, errno := o.fate.steps, o.fate.errno
	k.spread(steps, o.scribble, func() {
		switch {
		case o.state != waiting:
		case errno != 0 && errno != syscall.ENOSPC:
			o.leave()
			k.finish(o, -int32(errno))
		case o.sqe.Raw().Opcode == abi.IORING_OP_POLL_ADD:
			if o.on.sent > o.on.taken {
				k.pollEvent(o)
			}
		case o.sqe.Raw().Opcode == abi.IORING_OP_READ, o.sqe.Raw().Opcode == abi.IORING_OP_READ_MULTISHOT:
			k.serve(o.on)
		}
	})
}

// proceed lets an operation run that needs nothing but the device.
func (k *Kernel) proceed(o *op) {
	o.state = running
	k.armTimeout(o)
	k.mayExit(o)
	t := &o.fate
	switch {
	case t.wait > 0:
		k.later(t.wait, func() { k.spread(t.steps, o.scribble, func() { k.conclude(o) }) })
	case t.steps > 0:
		k.spread(t.steps, o.scribble, func() { k.conclude(o) })
	default:
		k.conclude(o)
	}
}

// mayExit cancels an operation some time later, because the thread of its
// submitter exits.
func (k *Kernel) mayExit(o *op) {
	if !o.fate.exit || o.ring.o.Pinned { // whose thread stays
		return
	}
	k.soon(o.fate.exitAfter, func() {
		if o.state == running || o.state == waiting {
			o.leave()
			k.outcome(o).Unasked++
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
	errno := o.fate.errno
	if errno == syscall.ENOSPC && o.sqe.Raw().Opcode != abi.IORING_OP_WRITE {
		errno = 0
	}
	switch {
	case errno != 0:
		k.finish(o, -int32(errno))
	case o.sqe.Raw().Opcode == abi.IORING_OP_NOP:
		k.finish(o, 0)
	case o.on.kind == isHost:
		k.finish(o, k.askHost(o))
	default:
		k.finish(o, k.transfer(o))
	}
}

// transfer moves the bytes of a read or write.
func (k *Kernel) transfer(o *op) int32 {
	data := o.on.data
	data = data[min(o.sqe.Raw().Off, uint64(len(data))):]
	n := o.length(min(int(o.sqe.Raw().Len), len(data)))
	if n == 0 {
		return 0
	}
	p := o.memory()[:n]
	if o.sqe.Raw().Opcode == abi.IORING_OP_READ {
		copy(p, data)
	} else {
		copy(data, p)
	}
	k.outcome(o).Data = append([]byte(nil), p...)
	return int32(n)
}

// scribble writes garbage into a part of the buffer of a read, which is the
// kernel's until the operation ends.
func (o *op) scribble() {
	if o.state == over || o.sqe.Raw().Opcode != abi.IORING_OP_READ || o.sqe.Raw().Len == 0 || o.internal() {
		return
	}
	k := o.ring.k
	p := o.memory()
	from := k.order.IntN(len(p))
	p = p[from : from+k.order.IntN(min(len(p)-from, 16))+1]
	for i := range p {
		p[i] = byte(k.order.Uint32())
	}
}

// leave takes an operation out of the lists of those who wait.
func (o *op) leave() {
	if o.on == nil {
		return
	}
	is := func(x *op) bool { return x == o }
	o.on.waiting = slices.DeleteFunc(o.on.waiting, is)
	o.on.polls = slices.DeleteFunc(o.on.polls, is)
}

// finish ends an operation: its memory is not touched any more, and its
// completion appears.
func (k *Kernel) finish(o *op, res int32) {
	if o.state == over {
		return
	}
	o.state = over
	o.leave()
	o.drop()
	k.unclaim(o)
	if o.timer != nil {
		o.timer.Stop()
	}
	out := k.outcome(o)
	out.Ended++
	out.Res = res
	if res < 0 {
		k.trace.count(syscall.Errno(-res).Error())
	}
	k.note("end", o, res)
	k.post(o, res, o.finalFlags)
	if t := o.timeout; t != nil {
		k.finish(t, -int32(syscall.ECANCELED))
	}
	k.goOn(o, res)
}

// goOn starts what was linked to an operation, or cancels it.
func (k *Kernel) goOn(o *op, res int32) {
	next := o.next
	if next == nil {
		return
	}
	full := res >= 0 && (!o.moves() || res == int32(o.sqe.Raw().Len))
	if full || o.sqe.Raw().Flags&abi.IOSQE_IO_HARDLINK != 0 {
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

// post lets a completion appear, soon.
func (k *Kernel) post(o *op, res int32, flags uring.CQEFlags) {
	p := posted{uring.CQE{UserData: o.sqe.Raw().UserData, Res: res, Flags: flags}, o.fate.stale && !o.stream()}
	if interrupted := res == -int32(syscall.ECANCELED) || res == -int32(syscall.EINTR); interrupted || o.internal() {
		p.stale = false // its user data may be used again
	}
	push := func() { o.ring.push(p) }
	switch {
	case k.misplace(o, p):
	case !o.fate.late || o.stream():
		push()
	case o.fate.lateBy > 0:
		k.trace.count("late")
		k.later(o.fate.lateBy, push)
	default:
		k.soon(1+k.order.IntN(20), push)
	}
}
