// SPDX-License-Identifier: MIT

package watch

import (
	"errors"
	"syscall"

	"github.com/ringside-io/ringside/features"
	"github.com/ringside-io/ringside/internal/epoll"
	"github.com/ringside-io/ringside/internal/sys"
	"github.com/ringside-io/ringside/uring"
)

// EpollBridge has a ring wait for an existing epoll instance, so that a loop can move to
// the ring step by step: descriptors stay registered with epoll, and their events arrive
// as a completion among the others. Where the kernel lacks EPOLL_WAIT (6.15) the ring polls
// the instance, and Events calls epoll_wait.
//
// A bridge is for one ring, and may be used where the ring may be used: by the ring's
// submission side (Wait, Ctl) and completion side (Events). It must stay
// reachable until the completion of the last Wait has been reaped: the kernel
// writes into its memory. The caller owns the ring and the instance and closes
// them; a Wait that is in flight ends with a cancellation like any operation.
type EpollBridge struct {
	epfd   int
	native bool
	ring   *uring.Ring
	events []uring.EpollEvent
	plain  []epoll.Event // for kernels without EPOLL_WAIT

	ctls []uring.EpollEvent // of entries that the kernel has not taken yet
	next int
}

// NewEpollBridge returns a bridge between a ring and an epoll instance, by its
// descriptor, that fetches up to most events at a time.
func NewEpollBridge(r *uring.Ring, epfd, most int) (*EpollBridge, error) {
	if most <= 0 {
		return nil, errors.New("watch: a bridge needs room for at least one event")
	}
	b := &EpollBridge{
		epfd:   epfd,
		native: features.HaveOp(uring.OpEpollWait) == nil,
		ring:   r,
		events: make([]uring.EpollEvent, most),
		ctls:   make([]uring.EpollEvent, max(r.SQEntries(), 1)),
	}
	if !b.native {
		b.plain = make([]epoll.Event, most)
	}
	return b, nil
}

// Wait fills an entry that completes when the instance has events. One may be in
// flight at a time: call it again after Events. It returns uring.ErrSQFull when
// the ring has no free entry.
func (b *EpollBridge) Wait(userData uint64) error {
	e := b.ring.SQE()
	if e == nil {
		return uring.ErrSQFull
	}
	if b.native {
		e.EpollWait(uring.Fd(b.epfd), b.events)
	} else {
		e.PollAdd(uring.Fd(b.epfd), uring.PollEvents(Read))
	}
	e.SetUserData(userData)
	return nil
}

// Events returns the events of the completion of Wait, which may be none.
// The slice is valid until the next Wait. The error is that of the completion,
// such as ECANCELED.
func (b *EpollBridge) Events(c uring.CQE) ([]uring.EpollEvent, error) {
	if err := c.Err(); err != nil {
		return nil, err
	}
	if b.native {
		return b.events[:min(int(c.Res), len(b.events))], nil
	}
	n, errno := sys.EpollWait(b.epfd, b.plain, 0)
	if errno == syscall.EINTR {
		n, errno = 0, 0
	}
	if errno != 0 {
		return nil, sys.Error("epoll_wait", errno)
	}
	for i := range b.plain[:n] {
		ev := &b.plain[i]
		b.events[i] = uring.NewEpollEvent(ev.Events, epoll.Data(ev))
	}
	return b.events[:n], nil
}

// Ctl fills an entry that adds, modifies or removes fd as epoll_ctl(2) does; op
// is EPOLL_CTL_ADD, MOD or DEL. Its completion has the result. Many changes make
// one system call this way. It returns uring.ErrSQFull when the ring has no free
// entry.
func (b *EpollBridge) Ctl(op, fd int, ev uring.EpollEvent, userData uint64) error {
	e := b.ring.SQE()
	if e == nil {
		return uring.ErrSQFull
	}
	// The kernel reads the event when it takes the entry, and there are never
	// more that it has not taken than the queue holds.
	slot := &b.ctls[b.next]
	b.next = (b.next + 1) % len(b.ctls)
	*slot = ev
	e.EpollCtl(uring.Fd(b.epfd), op, fd, slot).SetUserData(userData)
	return nil
}
