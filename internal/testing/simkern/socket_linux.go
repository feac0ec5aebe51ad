// SPDX-License-Identifier: MIT

package simkern

import (
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// await has an operation wait that met EAGAIN, unless it must not.
func (k *Kernel) await(o *op, events uint32) {
	if o.e.Opcode != abi.IORING_OP_ACCEPT && int(o.e.OpFlags)&sys.MsgDontWait != 0 {
		k.finish(o, -int32(syscall.EAGAIN), 0)
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
		k.finish(o, int32(n), 0)
	case syscall.EAGAIN:
		k.await(o, syscall.EPOLLIN|syscall.EPOLLRDHUP)
	default:
		k.finish(o, -int32(errno), 0)
	}
}

// recv is recv(2) that does not wait, into p.
func (k *Kernel) recv(o *op, p []byte) (n int, errno syscall.Errno) {
	for {
		if n, errno = sys.SockRecv(o.fd, p, int(o.e.OpFlags)|sys.MsgDontWait); errno != syscall.EINTR {
			break
		}
	}
	sys.RaceWrite(p[:n])
	return n, errno
}

// receiveSelect receives into the next provided buffer, which goes back when there
// is nothing.
func (k *Kernel) receiveSelect(o *op) {
	o.from.look(o.ring)
	if len(o.from.has) == 0 {
		k.finish(o, -int32(syscall.ENOBUFS), 0)
		return
	}
	b := o.from.has[0]
	p := sys.At[byte](b.addr, int(b.n))
	if most := int(o.e.Len); most > 0 && most < len(p) {
		p = p[:most]
	}
	n, errno := k.recv(o, p[:o.length(len(p))])
	switch {
	case errno == syscall.EAGAIN:
		k.await(o, syscall.EPOLLIN|syscall.EPOLLRDHUP)
	case errno != 0:
		k.finish(o, -int32(errno), 0)
	case n == 0:
		k.finish(o, 0, 0)
	default:
		o.from.take()
		flags := uring.CQEBuffer | uring.CQEFlags(b.id)<<abi.IORING_CQE_BUFFER_SHIFT
		if o.stream() {
			k.shot(o, int32(n), flags)
		} else {
			k.finish(o, int32(n), flags)
		}
	}
}

// send sends, with MSG_WAITALL until all is sent.
func (k *Kernel) send(o *op) {
	k.unchanged(o)
	p := o.memory()
	p = p[:o.length(len(p))]
	for {
		n, errno := sys.SockSend(o.fd, p[o.done:], int(o.e.OpFlags)|sys.MsgDontWait)
		o.done += n
		switch {
		case errno == syscall.EINTR:
		case errno == syscall.EAGAIN && (o.done == 0 || o.e.OpFlags&syscall.MSG_WAITALL != 0):
			k.await(o, syscall.EPOLLOUT)
			return
		case errno != 0 && o.done == 0:
			k.finish(o, -int32(errno), 0)
			return
		case errno != 0, o.done == len(p), o.e.OpFlags&syscall.MSG_WAITALL == 0:
			k.finish(o, int32(o.done), 0)
			return
		}
	}
}

// accept accepts a connection. The listener may be one that blocks, so it is asked
// before.
func (k *Kernel) accept(o *op) {
	ask := []sys.PollFD{{Fd: int32(o.fd), Events: syscall.EPOLLIN}}
	if n, errno := sys.PollNow(ask); n == 0 {
		k.await(o, syscall.EPOLLIN)
		return
	} else if errno != 0 { // a signal
		k.spread(0, nil, func() { k.attempt(o) })
		return
	}
	fd, _, errno := sys.SockAccept(o.fd, nil)
	switch {
	case errno == syscall.EAGAIN:
		k.await(o, syscall.EPOLLIN)
		return
	case errno != 0:
		k.finish(o, -int32(errno), 0)
		return
	case o.e.OpFlags&syscall.SOCK_NONBLOCK == 0:
		_ = syscall.SetNonblock(fd, false)
	}
	if o.stream() {
		k.shot(o, int32(fd), 0)
	} else {
		k.finish(o, int32(fd), 0)
	}
}
