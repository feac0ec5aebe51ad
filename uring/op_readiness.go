// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// PollEvents is a mask of POLLIN (1), POLLPRI (2), POLLOUT (4), POLLERR (8),
// POLLHUP (16), POLLRDHUP (0x2000) and, with FeatPoll32Bits, EPOLLEXCLUSIVE
// and EPOLLET.
//
// To wait for urgent data of a socket, combine POLLPRI with POLLIN: kernels up to 6.18 do
// not compare POLLPRI with the events of a wakeup. They report POLLPRI when ordinary data
// arrives, too, because they report the events of the wakeup.
type PollEvents uint32

// PollAdd waits until one of the events is ready on fd; the result is the mask of the
// ready events. (5.1)
func (e *SQE) PollAdd(fd FD, events PollEvents) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_POLL_ADD, Flags: fd.flags(), Fd: fd.n, OpFlags: pollMask(events)}}
	return e
}

// PollMultishot is like [SQE.PollAdd], but completes each time an event arrives,
// until a completion without CQEMore. The first completion reports the state that
// the poll finds. Later ones are edges: an event is not reported twice, and several that
// arrive together may share a completion. A full CQ may end the poll; submit it again then.
// For level-triggered reports submit [SQE.PollAdd] again each time: no kernel up to 6.18
// accepts IORING_POLL_ADD_LEVEL. (5.13)
func (e *SQE) PollMultishot(fd FD, events PollEvents) *SQE {
	e.PollAdd(fd, events).raw.Len = abi.IORING_POLL_ADD_MULTI
	return e
}

// PollRemove ends the poll with the given user data, which then completes with
// ECANCELED. The result is ENOENT when there is none. It is EALREADY when the poll is
// reporting an event at that moment: a one-shot poll has then ended, and a multishot poll
// continues. Submit PollRemove again, or use [SQE.Cancel], which does not have this case.
// (5.1)
func (e *SQE) PollRemove(userData uint64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_POLL_REMOVE, Fd: -1, Addr: userData}}
	return e
}

// PollUpdate changes the events and the user data of the poll with the given user data,
// both or neither. Pass the old user data to keep it. Only the lower 16 bits of the
// events count, and the poll stays one-shot or multishot as it was armed. The results
// are the same as for [SQE.PollRemove]. (5.13)
func (e *SQE) PollUpdate(userData uint64, events PollEvents, newUserData uint64) *SQE {
	e.PollRemove(userData)
	e.raw.Len = abi.IORING_POLL_UPDATE_EVENTS | abi.IORING_POLL_UPDATE_USER_DATA
	e.raw.OpFlags, e.raw.Off = pollMask(events), newUserData
	return e
}

// EpollEvent is struct epoll_event, which x86 packs.
type EpollEvent struct {
	Events uint32
	_      [sys.EpollPad]byte
	data   [8]byte
}

// NewEpollEvent returns an event mask (EPOLLIN and so on) with user data.
func NewEpollEvent(events uint32, data uint64) EpollEvent {
	ev := EpollEvent{Events: events}
	binary.NativeEndian.PutUint64(ev.data[:], data)
	return ev
}

// Data returns the user data of the event.
func (ev *EpollEvent) Data() uint64 { return binary.NativeEndian.Uint64(ev.data[:]) }

// EpollCtl adds, changes or removes fd in the epoll instance epfd; op is
// EPOLL_CTL_ADD, MOD or DEL, ev may be nil for DEL. The event is read at
// submission. The kernel does not accept a slot of the fixed file table here, neither as
// epfd, where the result is EBADF, nor as fd. (5.6)
func (e *SQE) EpollCtl(epfd FD, op int, fd int, ev *EpollEvent) *SQE {
	if epfd.fixed {
		epfd = Fd(-1) // the kernel would treat the slot as a descriptor
	}
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_EPOLL_CTL, Fd: epfd.n,
		Addr: sys.Addr(ev), Len: uint32(op), Off: uint64(uint32(fd))}}
	return e
}

// EpollWait waits for events of the epoll instance; the result is their number.
// The slice belongs to the operation until its completion. (6.15)
func (e *SQE) EpollWait(epfd FD, events []EpollEvent) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_EPOLL_WAIT, Flags: epfd.flags(), Fd: epfd.n,
		Addr: sys.SliceAddr(events), Len: count(len(events))}}
	return e
}
