// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// PollEvents is a mask of POLLIN (1), POLLPRI (2), POLLOUT (4), POLLERR (8),
// POLLHUP (16), POLLRDHUP (0x2000) and, with FeatPoll32Bits, EPOLLEXCLUSIVE
// and EPOLLET.
type PollEvents uint32

// PollAdd waits until fd has one of the events; the result is the mask of
// those it has. (5.1)
func (e *SQE) PollAdd(fd FD, events PollEvents) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_POLL_ADD, Flags: fd.flags(), Fd: fd.n, OpFlags: pollMask(events)}
	return e
}

// PollMultishot is [SQE.PollAdd] that completes each time an event arrives,
// until a completion without CQEMore. (5.13)
func (e *SQE) PollMultishot(fd FD, events PollEvents) *SQE {
	e.PollAdd(fd, events).Len = abi.IORING_POLL_ADD_MULTI
	return e
}

// PollLevel is [SQE.PollMultishot] for level-triggered reports: as long as the
// event lasts, each pass of the kernel reports it again. (6.0)
func (e *SQE) PollLevel(fd FD, events PollEvents) *SQE {
	e.PollAdd(fd, events).Len = abi.IORING_POLL_ADD_MULTI | abi.IORING_POLL_ADD_LEVEL
	return e
}

// PollRemove ends the poll with the given user data; it completes with
// ECANCELED. (5.1)
func (e *SQE) PollRemove(userData uint64) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_POLL_REMOVE, Fd: -1, Addr: userData}
	return e
}

// PollUpdateEvents changes the events of the poll with the given user data;
// multishot says whether it goes on being one. (5.13)
func (e *SQE) PollUpdateEvents(userData uint64, events PollEvents, multishot bool) *SQE {
	e.PollRemove(userData)
	e.Len, e.OpFlags = abi.IORING_POLL_UPDATE_EVENTS, pollMask(events)
	if multishot {
		e.Len |= abi.IORING_POLL_ADD_MULTI
	}
	return e
}

// PollUpdateUserData gives the poll with the given user data another. (5.13)
func (e *SQE) PollUpdateUserData(userData, newUserData uint64) *SQE {
	e.PollRemove(userData)
	e.Len, e.Off = abi.IORING_POLL_UPDATE_USER_DATA, newUserData
	return e
}

// pollMask encodes a mask for poll32_events, whose halves are swapped on
// big-endian machines.
func pollMask(ev PollEvents) uint32 {
	if bigEndian {
		return uint32(ev)<<16 | uint32(ev)>>16
	}
	return uint32(ev)
}
