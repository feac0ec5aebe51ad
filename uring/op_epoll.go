// SPDX-License-Identifier: MIT

package uring

import (
	"encoding/binary"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

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
// submission. The kernel takes no slot of the fixed file table here, neither as
// epfd, where the result is EBADF, nor as fd. (5.6)
func (e *SQE) EpollCtl(epfd FD, op int, fd int, ev *EpollEvent) *SQE {
	if epfd.fixed {
		epfd = Fd(-1) // the kernel would take the slot for a descriptor
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
