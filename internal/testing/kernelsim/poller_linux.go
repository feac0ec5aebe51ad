// SPDX-License-Identifier: MIT

package kernelsim

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// poller reports which operations are ready, with an epoll instance. Each operation has a
// duplicated descriptor there. Events are edge-triggered, like the wake-ups of the kernel's own
// operations.
type poller struct {
	ready  *sys.FD // of the operations
	both   *sys.FD // ready and the wake-up, for the goroutine that sleeps
	wakeup *sys.FD
	ops    map[uint64]*op
	last   uint64
}

func (p *poller) open() (err error) {
	if p.ready, err = sys.EpollCreate(); err != nil {
		return err
	}
	if p.both, err = sys.EpollCreate(); err != nil {
		return errors.Join(err, p.ready.Close())
	}
	if p.wakeup, err = sys.EventFD(); err != nil {
		return errors.Join(err, p.ready.Close(), p.both.Close())
	}
	for _, fd := range []*sys.FD{p.ready, p.wakeup} {
		if errno := sys.EpollCtl(p.both.Int(), syscall.EPOLL_CTL_ADD, fd.Int(), syscall.EPOLLIN, 0); errno != 0 {
			return errors.Join(errno, p.ready.Close(), p.both.Close(), p.wakeup.Close())
		}
	}
	p.ops = make(map[uint64]*op)
	return nil
}

// polls reports whether there is a poller, which is so once package uring has opened a ring.
func (k *Kernel) polls() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.poll.ops != nil
}

// wake ends the wait of the goroutine that sleeps.
func (p *poller) wake() {
	if p.ops != nil {
		sys.Signal(p.wakeup)
	}
}

func (p *poller) close() {
	if p.ops == nil {
		return
	}
	for _, fd := range []*sys.FD{p.ready, p.both, p.wakeup} {
		_ = fd.Close()
	}
}

// listen calls ready when descriptors become ready.
func (k *Kernel) listen() {
	events := make([]sys.EpollEvent, 2)
	for {
		_, _ = sys.EpollWait(k.poll.both.Int(), events, -1)
		k.mu.Lock()
		if k.tasks.isStopped() {
			k.mu.Unlock()
			return
		}
		k.ready()
		k.mu.Unlock()
	}
}

// watch continues an operation when its file has one of the events, at once if it has
// them now. The caller holds mu.
func (k *Kernel) watch(o *op, events uint32) {
	const edge, once = 1 << 31, 1 << 30
	how := events | edge
	if o.e.Opcode != abi.IORING_OP_POLL_ADD || !o.multishot() {
		how |= once
	}
	call := syscall.EPOLL_CTL_MOD
	if o.desc.key == 0 {
		k.poll.last++
		o.desc.key, call = k.poll.last, syscall.EPOLL_CTL_ADD
		k.poll.ops[o.desc.key] = o
	}
	switch errno := sys.EpollCtl(k.poll.ready.Int(), call, o.desc.fd, how, o.desc.key); errno {
	case 0:
	case syscall.EPERM: // a file that is always ready
		k.found(o, events&(syscall.EPOLLIN|syscall.EPOLLOUT))
	default:
		k.finish(o, -int32(errno))
	}
}

// forget ends a watch. The caller holds mu.
func (k *Kernel) forget(o *op) {
	if o.desc.key != 0 {
		delete(k.poll.ops, o.desc.key)
		_ = sys.EpollCtl(k.poll.ready.Int(), syscall.EPOLL_CTL_DEL, o.desc.fd, 0, 0)
		o.desc.key = 0
	}
}

// ready continues the operations whose descriptors are ready. The caller holds mu.
func (k *Kernel) ready() {
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

// found continues an operation whose file is ready.
func (k *Kernel) found(o *op, mask uint32) {
	switch {
	case o.state != waiting || o.ring.base().failed:
	case o.e.Opcode != abi.IORING_OP_POLL_ADD:
		k.spread(0, nil, func() { k.attempt(o) })
	case o.multishot():
		k.shot(o, int32(mask), 0)
	default:
		k.finish(o, int32(mask))
	}
}

// always has the events that every poll reports.
const always = syscall.EPOLLERR | syscall.EPOLLHUP | syscall.EPOLLRDHUP

// events returns the events of a poll.
func (o *op) events() uint32 { return o.e.OpFlags&0xffff | always }

// rewatch watches a poll whose events have changed.
func (o *op) rewatch() {
	if o.desc != nil && o.desc.key != 0 {
		k := o.ring.base().k
		k.watch(o, o.events())
		k.ready()
	}
}
