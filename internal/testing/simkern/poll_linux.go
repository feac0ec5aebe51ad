// SPDX-License-Identifier: MIT

package simkern

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// poller learns what is ready: from an epoll instance with the references of
// operations, each of which is a descriptor of its own. Its events are edges, as
// those are that wake the kernel's operations.
type poller struct {
	ready *sys.FD // of the operations
	both  *sys.FD // of ready and the bell, for the goroutine that sleeps
	bell  *sys.FD
	ops   map[uint64]*op
	last  uint64
}

func (p *poller) open() (err error) {
	p.ops = make(map[uint64]*op)
	if p.ready, err = sys.EpollCreate(); err != nil {
		return err
	}
	if p.both, err = sys.EpollCreate(); err != nil {
		return errors.Join(err, p.ready.Close())
	}
	if p.bell, err = sys.EventFD(); err != nil {
		return errors.Join(err, p.ready.Close(), p.both.Close())
	}
	for _, fd := range []*sys.FD{p.ready, p.bell} {
		if errno := sys.EpollCtl(p.both.Int(), syscall.EPOLL_CTL_ADD, fd.Int(), syscall.EPOLLIN, 0); errno != 0 {
			p.close()
			return errno
		}
	}
	return nil
}

func (p *poller) close() {
	for _, fd := range []*sys.FD{p.ready, p.both, p.bell} {
		_ = fd.Close()
	}
}

// listen has what becomes ready looked at.
func (k *Kernel) listen() {
	events := make([]sys.EpollEvent, 2)
	for {
		_, _ = sys.EpollWait(k.poll.both.Int(), events, -1)
		k.mu.Lock()
		if k.chores.Stopped() {
			k.mu.Unlock()
			return
		}
		k.drain()
		k.mu.Unlock()
	}
}

// watch has an operation go on when its file has one of the events, at once if it
// has them. The caller holds mu.
func (k *Kernel) watch(o *op, events uint32) {
	const edge, once = 1 << 31, 1 << 30
	how := events | edge
	if o.e.Opcode != abi.IORING_OP_POLL_ADD || !o.stream() {
		how |= once
	}
	call := syscall.EPOLL_CTL_MOD
	if o.key == 0 {
		k.poll.last++
		o.key, call = k.poll.last, syscall.EPOLL_CTL_ADD
		k.poll.ops[o.key] = o
	}
	switch errno := sys.EpollCtl(k.poll.ready.Int(), call, o.fd, how, o.key); errno {
	case 0:
	case syscall.EPERM: // a file that is always ready
		k.found(o, events&(syscall.EPOLLIN|syscall.EPOLLOUT))
	default:
		k.finish(o, -int32(errno), 0)
	}
}

// forget ends watch. The caller holds mu.
func (k *Kernel) forget(o *op) {
	if o.key != 0 {
		delete(k.poll.ops, o.key)
		_ = sys.EpollCtl(k.poll.ready.Int(), syscall.EPOLL_CTL_DEL, o.fd, 0, 0)
		o.key = 0
	}
}

// drain looks at all that has become ready. The caller holds mu.
func (k *Kernel) drain() {
	events := make([]sys.EpollEvent, 32)
	for {
		n, errno := sys.EpollWait(k.poll.ready.Int(), events, 0)
		if errno != 0 || n == 0 {
			return
		}
		for i := range events[:n] {
			if o := k.poll.ops[sys.EpollData(&events[i])]; o != nil {
				k.found(o, events[i].Events)
			}
		}
	}
}

// found goes on with an operation whose file is ready.
func (k *Kernel) found(o *op, mask uint32) {
	switch {
	case o.state != waiting || o.ring.failed:
	case o.e.Opcode != abi.IORING_OP_POLL_ADD:
		k.spread(0, nil, func() { k.attempt(o) })
	case o.stream():
		k.shot(o, int32(mask), 0)
	default:
		k.finish(o, int32(mask), 0)
	}
}

// always are the events of which every poll tells.
const always = syscall.EPOLLERR | syscall.EPOLLHUP | syscall.EPOLLRDHUP

// events returns what a poll is for.
func (o *op) events() uint32 { return o.e.OpFlags&0xffff | always }

// change carries out a POLL_REMOVE, which may also change a poll, and returns its
// result.
func (k *Kernel) change(by *op) int32 {
	if by.fate.Errno != 0 {
		k.counts["lost change"]++
		return -int32(by.fate.Errno)
	}
	const update = abi.IORING_POLL_UPDATE_EVENTS | abi.IORING_POLL_UPDATE_USER_DATA
	for _, o := range k.ops {
		if o.ring != by.ring || o.e.Opcode != abi.IORING_OP_POLL_ADD || o.e.UserData != by.e.Addr {
			continue
		}
		switch {
		case o.state != waiting:
			return -int32(syscall.EALREADY)
		case by.e.Len&update == 0:
			k.finish(o, -int32(syscall.ECANCELED), 0)
			return 0
		}
		if by.e.Len&abi.IORING_POLL_UPDATE_USER_DATA != 0 {
			o.e.UserData = by.e.Off
		}
		if by.e.Len&abi.IORING_POLL_UPDATE_EVENTS != 0 {
			o.e.OpFlags = o.e.OpFlags&^0xffff | by.e.OpFlags&0xffff
		}
		if o.key != 0 {
			k.watch(o, o.events())
			k.drain()
		}
		return 0
	}
	return -int32(syscall.ENOENT)
}

// cancel carries out an ASYNC_CANCEL and returns its result.
func (k *Kernel) cancel(by *op) int32 {
	flags := by.e.OpFlags
	all := flags&(abi.IORING_ASYNC_CANCEL_ALL|abi.IORING_ASYNC_CANCEL_ANY) != 0
	if by.fate.Lost || by.fate.Errno != 0 {
		k.counts["lost cancel"]++
		if all {
			return 0
		}
		return -int32(by.fate.Errno)
	}
	found, result := int32(0), -int32(syscall.ENOENT)
	for _, o := range append([]*op(nil), k.ops...) {
		if o == by || o.ring != by.ring || !matches(o, &by.e) {
			continue
		}
		if o.state != waiting {
			result = -int32(syscall.EALREADY)
			continue
		}
		found++
		k.finish(o, -int32(syscall.ECANCELED), 0)
		if !all {
			return 0
		}
	}
	if all {
		return found
	}
	return result
}

// matches reports whether a cancellation is for an operation.
func matches(o *op, by *uring.RawSQE) bool {
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

// stop ends an operation of a ring that is closed, some time later. The caller
// holds mu.
func (k *Kernel) stop(o *op) {
	if o.state >= ending {
		return
	}
	o.state = ending
	o.scribble()
	k.later(moment, func() {
		k.spread(1+k.dice.IntN(10), o.scribble, func() { k.finish(o, -int32(syscall.ECANCELED), 0) })
	})
}
