// SPDX-License-Identifier: MIT

package kernelsim

import (
	"hash/maphash"
	"slices"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// descriptor is the state of an operation on a descriptor of the process, below package uring.
type descriptor struct {
	fd   int    // its reference to the file
	sum  uint64 // checksum of the memory to be sent
	done int    // number of bytes already sent
	key  uint64 // in the poller, 0 for none
}

// These are the flags of entries and operations that are supported on descriptors.
const knownFlags = abi.IOSQE_BUFFER_SELECT | abi.IOSQE_CQE_SKIP_SUCCESS | abi.IOSQE_ASYNC | linkFlags

var knownOps = []uint8{abi.IORING_OP_READ, abi.IORING_OP_READ_FIXED, abi.IORING_OP_WRITE, abi.IORING_OP_WRITE_FIXED,
	abi.IORING_OP_RECV, abi.IORING_OP_SEND, abi.IORING_OP_ACCEPT, abi.IORING_OP_POLL_ADD}

// open takes a reference to the file, as the kernel does when an operation begins.
func (o *op) open() syscall.Errno {
	b := o.ring.base()
	if o.e.Flags&^knownFlags != 0 || o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 && o.e.Opcode != abi.IORING_OP_RECV ||
		!slices.Contains(knownOps, o.e.Opcode) {
		b.k.violation("an entry that is not simulated: %v, flags %x", o, o.e.Flags)
		return syscall.EINVAL
	}
	fd, err := sys.Dup(int(o.e.Fd))
	if err != nil {
		return syscall.EBADF
	}
	o.desc = &descriptor{fd: fd}
	switch {
	case o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 && o.group() == nil:
		return syscall.ENOBUFS
	case !o.ring.base().hasRegistered(o):
		return syscall.EFAULT
	case o.empties():
		o.desc.sum = o.sum()
	}
	return 0
}

// release releases the reference.
func (o *op) release() {
	if o.desc == nil {
		return
	}
	o.ring.base().k.forget(o)
	_ = syscall.Close(o.desc.fd)
	o.desc.fd = -1
}

var seed = maphash.MakeSeed()

// sum returns the checksum of the memory to be sent.
func (o *op) sum() uint64 {
	p := o.memory()
	sys.RaceRead(p)
	return maphash.Bytes(seed, p)
}

// unchanged checks that the memory has not changed since the operation began. The memory belongs to
// the kernel until the completion.
func (o *op) unchanged() {
	if o.desc == nil || o.desc.sum == 0 || o.ring.base().closed {
		return
	}
	if now := o.sum(); now != o.desc.sum {
		o.desc.sum = now
		o.ring.base().k.violation("the memory of %v has changed before its completion", o)
	}
}

// startDescriptor begins an operation on a descriptor, or the next completion of one. Transfers
// take some time, so that they end in another order than that in which they began.
func (k *Kernel) startDescriptor(o *op) {
	f := &o.effect
	if o.transfers() {
		if f.steps == 0 {
			f.steps = k.order.IntN(8)
			if k.order.IntN(3) == 0 {
				f.wait = moment
			}
		}
		k.proceed(o)
		return
	}
	o.state = waiting
	k.armTimeout(o)
	next := func() { k.attempt(o) }
	switch {
	case f.exit:
		k.mayExit(o)
	case f.steps > 0:
		k.spread(f.steps, o.scribble, next)
	case f.late && o.multishot():
		k.later(moment, next)
	case o.e.Opcode == abi.IORING_OP_SEND && k.order.IntN(2) == 0: // as if there were no room at first
		k.spread(k.order.IntN(4), nil, next)
	default:
		next()
	}
}

// attempt tries to run an operation that may have to wait. The caller holds mu.
func (k *Kernel) attempt(o *op) {
	if o.state != waiting || o.ring.base().failed { // nothing would run the operation
		return
	}
	if o.effect.errno != 0 {
		k.finish(o, -int32(o.effect.errno))
		return
	}
	switch o.e.Opcode {
	case abi.IORING_OP_RECV:
		if o.e.Flags&abi.IOSQE_BUFFER_SELECT != 0 {
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
		k.ready()
	}
}

// nextShot completes a multishot operation and starts its next completion.
func (k *Kernel) nextShot(o *op, res int32) {
	if !k.shot(o, res, o.flags) {
		return
	}
	o.flags = 0
	k.spread(k.order.IntN(3), nil, func() {
		if o.state == waiting {
			o.effect = k.draw(o.on)
			k.plan(o)
			k.startDescriptor(o)
		}
	})
}

// complete completes an operation that may be multishot.
func (k *Kernel) complete(o *op, res int32) {
	if o.multishot() {
		k.nextShot(o, res)
	} else {
		k.finish(o, res)
	}
}

// transferDescriptor moves the bytes of a file.
func (k *Kernel) transferDescriptor(o *op) int32 {
	p, off := o.memory(), int64(o.e.Off)
	p = p[:o.length(len(p))]
	if o.fills() {
		return answer(sys.Pread(o.desc.fd, p, off))
	}
	o.unchanged()
	return answer(sys.Pwrite(o.desc.fd, p, off))
}

// block makes an operation that got EAGAIN wait, unless it must not wait.
func (k *Kernel) block(o *op, events uint32) {
	if o.e.Opcode != abi.IORING_OP_ACCEPT && int(o.e.OpFlags)&sys.MsgDontWait != 0 {
		k.finish(o, -int32(syscall.EAGAIN))
		return
	}
	o.scribble()
	k.watch(o, events)
}

// receive receives into the caller's memory.
func (k *Kernel) receive(o *op) {
	p := o.memory()
	p = p[:o.length(len(p))]
	n, errno := k.recv(o, p)
	switch errno {
	case 0:
		k.finish(o, int32(n))
	case syscall.EAGAIN:
		k.block(o, syscall.EPOLLIN|syscall.EPOLLRDHUP)
	default:
		k.finish(o, -int32(errno))
	}
}

// recv is a non-blocking recv(2) into p.
func (k *Kernel) recv(o *op, p []byte) (n int, errno syscall.Errno) {
	for {
		if n, errno = sys.SockRecv(o.desc.fd, p, int(o.e.OpFlags)|sys.MsgDontWait); errno != syscall.EINTR {
			break
		}
	}
	sys.RaceWrite(p[:n])
	return n, errno
}

// receiveSelect receives into the next provided buffer, and returns the buffer if there is no data.
func (k *Kernel) receiveSelect(o *op) {
	g := o.group()
	if g != nil {
		g.fetch(k)
	}
	if g == nil || len(g.has) == 0 || o.effect.noBuffers && o.shots > 0 {
		k.finish(o, -int32(syscall.ENOBUFS))
		return
	}
	p := g.has[0].memory()
	if most := int(o.e.Len); most > 0 && most < len(p) {
		p = p[:most]
	}
	n, errno := k.recv(o, p[:o.length(len(p))])
	switch {
	case errno == syscall.EAGAIN:
		k.block(o, syscall.EPOLLIN|syscall.EPOLLRDHUP)
	case errno != 0:
		k.finish(o, -int32(errno))
	case n == 0:
		k.finish(o, 0)
	default:
		o.flags = bufferFlags(g.take().id)
		k.complete(o, int32(n))
	}
}

// send sends. With MSG_WAITALL it continues until everything is sent.
func (k *Kernel) send(o *op) {
	o.unchanged()
	p := o.memory()
	p = p[:o.length(len(p))]
	for {
		n, errno := sys.SockSend(o.desc.fd, p[o.desc.done:], int(o.e.OpFlags)|sys.MsgDontWait)
		o.desc.done += n
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN && (o.desc.done == 0 || o.e.OpFlags&syscall.MSG_WAITALL != 0):
			k.block(o, syscall.EPOLLOUT)
			return
		case errno != 0 && o.desc.done == 0:
			k.finish(o, -int32(errno))
			return
		case errno != 0, o.desc.done == len(p), o.e.OpFlags&syscall.MSG_WAITALL == 0:
			k.finish(o, int32(o.desc.done))
			return
		}
	}
}

// accept accepts a connection. It polls the listener first, because the listener may be blocking.
func (k *Kernel) accept(o *op) {
	ask := []sys.PollFD{{Fd: int32(o.desc.fd), Events: syscall.EPOLLIN}}
	if n, errno := sys.PollNow(ask); n == 0 {
		k.block(o, syscall.EPOLLIN)
		return
	} else if errno != 0 { // interrupted by a signal
		k.spread(0, nil, func() { k.attempt(o) })
		return
	}
	fd, _, errno := sys.SockAccept(o.desc.fd, nil)
	switch {
	case errno == syscall.EAGAIN:
		k.block(o, syscall.EPOLLIN)
		return
	case errno != 0:
		k.finish(o, -int32(errno))
		return
	case o.e.OpFlags&syscall.SOCK_NONBLOCK == 0:
		_ = syscall.SetNonblock(fd, false)
	}
	k.complete(o, int32(fd))
}

// Files is a Host that reads and writes real files.
type Files struct{}

func (Files) Read(fd int, p []byte, off int64) int32 { return answer(syscall.Pread(fd, p, off)) }

func (Files) Write(fd int, p []byte, off int64) int32 { return answer(syscall.Pwrite(fd, p, off)) }

func (Files) Sync(fd int) int32 { return answer(0, syscall.Fdatasync(fd)) }

func (Files) Hold(fd int) int32 {
	n, _, errno := syscall.Syscall(syscall.SYS_FCNTL, uintptr(fd), syscall.F_DUPFD_CLOEXEC, 1) // 0 means none
	if errno != 0 {
		return -int32(errno)
	}
	return int32(n)
}

func (Files) Drop(fd int) { _ = syscall.Close(fd) }

// answer returns the result of a completion.
func answer(n int, err error) int32 {
	if errno, ok := err.(syscall.Errno); ok {
		return -int32(errno)
	}
	return int32(n)
}
