// SPDX-License-Identifier: MIT

package simkern

import (
	"fmt"
	"hash/maphash"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/internal/testing/kernelsim"
	"github.com/ringside-io/ringside/uring"
)

// op is an operation that the kernel holds.
type op struct {
	ring  *ring
	e     uring.RawSQE
	state state
	fate  kernelsim.Fate
	fd    int    // its reference to the file, -1 for none
	from  *group // of the provided buffers that it takes, nil for none
	sum   uint64 // of the memory to be sent
	done  int    // how much of it was
	key   uint64 // in the poller, 0 for none
}

// state is where an operation stands.
type state int

const (
	waiting state = iota // for data, room or an event: it can be cancelled
	running              // it cannot
	ending               // it is being cancelled
	over
)

func (o *op) String() string {
	return fmt.Sprintf("%v of descriptor %d, user data %x", uring.Op(o.e.Opcode), o.e.Fd, o.e.UserData)
}

// stream reports whether the operation may complete several times.
func (o *op) stream() bool {
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

// file reports whether it works on a file, in a worker thread or a device.
func (o *op) file() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED:
		return true
	}
	return false
}

// fills reports whether the kernel writes into memory of the entry, empties that it
// reads such.
func (o *op) fills() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED:
		return true
	case abi.IORING_OP_RECV:
		return o.e.Flags&abi.IOSQE_BUFFER_SELECT == 0
	}
	return false
}

func (o *op) empties() bool {
	switch o.e.Opcode {
	case abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED, abi.IORING_OP_SEND:
		return true
	}
	return false
}

// memory is that of the entry.
func (o *op) memory() []byte { return sys.At[byte](o.e.Addr, int(o.e.Len)) }

// owns reports whether the operation has something that its user must wait for:
// memory, or connections.
func (o *op) owns() bool {
	return o.state != over && (o.fills() || o.empties() || o.from != nil || o.e.Opcode == abi.IORING_OP_ACCEPT)
}

// uses reports whether memory is the operation's. If so it forgets that, because the
// memory is gone.
func (o *op) uses(addr uint64, size int) bool {
	overlaps := func(from uint64, n uint32) bool { return from < addr+uint64(size) && addr < from+uint64(n) }
	if (o.fills() || o.empties()) && overlaps(o.e.Addr, o.e.Len) {
		o.e.Len = 0
		return true
	}
	if o.from != nil && slices.ContainsFunc(o.from.has, func(p provided) bool { return overlaps(p.addr, p.n) }) {
		o.from = nil
		return true
	}
	return false
}

// known are the flags of entries that mean something here.
const known = abi.IOSQE_BUFFER_SELECT | abi.IOSQE_CQE_SKIP_SUCCESS | abi.IOSQE_ASYNC

// begin takes an entry up. The caller holds mu.
func (k *Kernel) begin(o *op) {
	k.ops = append(k.ops, o)
	k.counts[uring.Op(o.e.Opcode).String()]++
	if !o.ring.limits.allows(&o.e) {
		k.finish(o, -int32(syscall.EACCES), 0)
		return
	}
	o.plan()
	switch o.e.Opcode {
	case abi.IORING_OP_NOP:
		k.pace(o)
	case abi.IORING_OP_ASYNC_CANCEL:
		k.finish(o, k.cancel(o), 0)
	case abi.IORING_OP_POLL_REMOVE:
		k.finish(o, k.change(o), 0)
	case abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED,
		abi.IORING_OP_RECV, abi.IORING_OP_SEND, abi.IORING_OP_ACCEPT, abi.IORING_OP_POLL_ADD:
		if errno := k.claim(o); errno != 0 {
			k.finish(o, -int32(errno), 0)
			return
		}
		k.pace(o)
	default:
		k.violation("an entry that is not simulated: %v", o)
		k.finish(o, -int32(syscall.EINVAL), 0)
	}
}

// plan asks what will become of the operation, or its next shot.
func (o *op) plan() {
	if f := o.ring.k.o.Plan.Op; f != nil {
		o.fate = f(&o.e)
	}
}

// claim takes what the operation has until it ends: its file and its memory.
func (k *Kernel) claim(o *op) syscall.Errno {
	if o.e.Flags&^known != 0 || o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 && o.e.Opcode != abi.IORING_OP_RECV {
		k.violation("flags that are not simulated: %x of %v", o.e.Flags, o)
		return syscall.EINVAL
	}
	fd, err := sys.Dup(int(o.e.Fd))
	if err != nil {
		return syscall.EBADF
	}
	o.fd = fd
	if o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 {
		if o.from = o.ring.groups[o.e.BufIndex]; o.from == nil {
			return syscall.ENOBUFS
		}
	}
	if !o.registered() {
		return syscall.EFAULT
	}
	for _, x := range k.ops {
		if x != o && (o.fills() && (x.fills() || x.empties()) || o.empties() && x.fills()) &&
			o.e.Addr < x.e.Addr+uint64(x.e.Len) && x.e.Addr < o.e.Addr+uint64(o.e.Len) {
			k.violation("%v has memory that is still that of %v", o, x)
		}
	}
	if o.empties() {
		o.sum = o.sumUp()
	}
	return 0
}

// registered reports whether the memory of a FIXED operation is registered.
func (o *op) registered() bool {
	if o.e.Opcode != abi.IORING_OP_READ_FIXED && o.e.Opcode != abi.IORING_OP_WRITE_FIXED {
		return true
	}
	if int(o.e.BufIndex) >= len(o.ring.fixed) {
		return false
	}
	b := o.ring.fixed[o.e.BufIndex]
	return o.e.Addr >= b[0] && o.e.Addr+uint64(o.e.Len) <= b[0]+b[1]
}

var seed = maphash.MakeSeed()

// sumUp looks at the memory that is to be sent.
func (o *op) sumUp() uint64 {
	p := o.memory()
	sys.RaceRead(p)
	return maphash.Bytes(seed, p)
}

// unchanged looks whether that memory is as it was.
func (k *Kernel) unchanged(o *op) {
	if now := o.sumUp(); now != o.sum {
		o.sum = now
		k.violation("the memory of %v has changed before its completion", o)
	}
}

// pace lets an operation go on when its time has come. The caller holds mu.
func (k *Kernel) pace(o *op) {
	o.state = waiting
	if o.file() || o.e.Opcode == abi.IORING_OP_NOP {
		o.state = running
	}
	next := func() { k.attempt(o) }
	switch f := &o.fate; {
	case f.Unasked:
		k.spread(while/2, o.scribble, func() {
			if o.state < ending {
				k.finish(o, -int32(syscall.ECANCELED), 0)
			}
		})
	case f.Errno != 0 || f.Short:
		k.spread(while, o.scribble, next)
	case f.Late && o.stream():
		k.later(moment, next)
	case o.file():
		k.transferLater(o, next)
	case o.e.Opcode == abi.IORING_OP_SEND && k.dice.IntN(2) == 0: // there was no room at first
		k.spread(k.dice.IntN(4), nil, next)
	default:
		next()
	}
}

// transferLater lets a transfer take some steps, or some time: transfers end in
// another order than they began.
func (k *Kernel) transferLater(o *op, next func()) {
	steps := k.dice.IntN(8)
	if k.dice.IntN(3) > 0 {
		k.spread(steps, o.scribble, next)
		return
	}
	k.later(moment, func() { k.spread(steps, o.scribble, next) })
}

// attempt tries to carry the operation out. The caller holds mu.
func (k *Kernel) attempt(o *op) {
	if o.state >= ending || o.ring.failed && o.state == waiting { // nobody would run it
		return
	}
	if o.fate.Errno != 0 {
		k.finish(o, -int32(o.fate.Errno), 0)
		return
	}
	switch o.e.Opcode {
	case abi.IORING_OP_RECV:
		if o.from != nil {
			k.receiveSelect(o)
		} else {
			k.receive(o)
		}
	case abi.IORING_OP_SEND:
		k.send(o)
	case abi.IORING_OP_ACCEPT:
		k.accept(o)
	case abi.IORING_OP_POLL_ADD:
		k.watch(o, o.events())
		k.drain()
	case abi.IORING_OP_NOP:
		k.finish(o, 0, 0)
	default:
		k.finish(o, k.transfer(o), 0)
	}
}

// length returns how much of n an operation is for.
func (o *op) length(n int) int {
	const block = 4096
	switch {
	case !o.fate.Short || n < 2:
		return n
	case o.file() && n > block && n%block == 0: // as direct transfers are
		return n / block / 2 * block
	}
	return n / 2
}

// transfer moves the bytes of a file.
func (k *Kernel) transfer(o *op) int32 {
	p, off := o.memory(), int64(o.e.Off)
	p = p[:o.length(len(p))]
	var n int
	var err error
	if o.fills() {
		n, err = sys.Pread(o.fd, p, off)
	} else {
		k.unchanged(o)
		n, err = sys.Pwrite(o.fd, p, off)
	}
	if errno, ok := err.(syscall.Errno); ok {
		return -int32(errno)
	}
	return int32(n)
}

// scribble writes garbage into a part of memory that is the operation's to fill.
func (o *op) scribble() {
	k := o.ring.k
	var p []byte
	switch {
	case o.state == over:
		return
	case o.fills() && o.e.Len > 0:
		p = o.memory()
	case o.from != nil && len(o.from.has) > 0:
		b := o.from.has[k.dice.IntN(len(o.from.has))]
		p = sys.At[byte](b.addr, int(b.n))
	default:
		return
	}
	from := k.dice.IntN(len(p))
	k.garbage(p[from : from+k.dice.IntN(min(len(p)-from, 16))+1])
}

// shot completes an operation that goes on, with pause until the next shot. Like
// the kernel's it ends with what it has when the queue is full.
func (k *Kernel) shot(o *op, res int32, flags uring.CQEFlags) {
	if o.ring.full() || happens(k.o.Plan.Overflow) {
		k.counts["full stream"]++
		k.end(o, res, flags, true)
		return
	}
	o.ring.push(posted{cqe: uring.CQE{UserData: o.e.UserData, Res: res, Flags: flags | uring.CQEMore}})
	if o.e.Opcode != abi.IORING_OP_POLL_ADD { // whose next event comes by itself
		k.spread(k.dice.IntN(3), nil, func() {
			if o.state == waiting {
				o.plan()
				k.pace(o)
			}
		})
	}
}

// finish ends an operation: its memory is not touched any more, and its completion
// appears.
func (k *Kernel) finish(o *op, res int32, flags uring.CQEFlags) { k.end(o, res, flags, false) }

func (k *Kernel) end(o *op, res int32, flags uring.CQEFlags, overflow bool) {
	if o.state == over {
		return
	}
	o.state = over
	k.ops = slices.DeleteFunc(k.ops, func(x *op) bool { return x == o })
	o.release()
	k.ended.Broadcast()
	if res >= 0 && o.e.Flags&abi.IOSQE_CQE_SKIP_SUCCESS != 0 {
		return
	}
	if o.empties() && o.sum != 0 && !o.ring.closed {
		k.unchanged(o)
	}
	p := posted{uring.CQE{UserData: o.e.UserData, Res: res, Flags: flags}, overflow || happens(k.o.Plan.Overflow)}
	if o.fate.Late && !o.stream() {
		k.later(moment, func() {
			if o.empties() && !o.ring.closed {
				k.unchanged(o)
			}
			o.ring.push(p)
		})
		return
	}
	o.ring.push(p)
}

// release gives the file back.
func (o *op) release() {
	if o.fd < 0 {
		return
	}
	o.ring.k.forget(o)
	_ = syscall.Close(o.fd)
	o.fd = -1
}
