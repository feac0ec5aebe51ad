// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Recv is recv(2) with its MSG_ flags: the result is the count, 0 at the end.
// p belongs to the operation until its completion. (5.6)
func (e *SQE) Recv(fd FD, p []byte, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_RECV, Flags: fd.flags(), Fd: fd.n,
		Addr: sys.SliceAddr(p), Len: byteCount(len(p)), OpFlags: uint32(flags)}}
	return e
}

// RecvSelect receives at most n bytes into a provided buffer of the group;
// n = 0 means the buffer's length. (5.7)
func (e *SQE) RecvSelect(fd FD, n int, flags int, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_RECV, Flags: fd.flags() | abi.IOSQE_BUFFER_SELECT, Fd: fd.n,
		Len: byteCount(n), OpFlags: uint32(flags), BufIndex: group}}
	return e
}

// RecvBundle is [SQE.RecvSelect] into as many buffers as the data needs. The
// completion names the first; the others follow it in the ring. (6.10,
// FeatRecvSendBundle)
func (e *SQE) RecvBundle(fd FD, n int, flags int, group uint16) *SQE {
	e.RecvSelect(fd, n, flags, group)
	e.raw.Ioprio = abi.IORING_RECVSEND_BUNDLE
	return e
}

// RecvMultishot receives repeatedly into provided buffers of the group,
// until a completion without CQEMore: an error, the end of the stream or an
// empty datagram (result 0), ENOBUFS when the group is empty, or data that
// filled the CQ. (6.0)
//
// After more than 32 buffers in a row Linux 6.12 and 6.18 do not report a TCP reset, nor
// Linux 6.18 the end of a Unix stream, that had arrived before the last data were taken:
// after a completion without [CQESockNonEmpty] the kernel does not check for it. Poll for
// POLLRDHUP as well, by [SQE.PollAdd], and use [SQE.RecvSelect] after it.
func (e *SQE) RecvMultishot(fd FD, flags int, group uint16) *SQE {
	e.RecvSelect(fd, 0, flags, group)
	e.raw.Ioprio = abi.IORING_RECV_MULTISHOT
	return e
}

// RecvMultishotLimit is like [SQE.RecvMultishot], but takes at most each bytes at a
// time, 0 meaning the buffer's length, and ends with the completion that reaches
// total bytes, 0 meaning never. (6.16)
func (e *SQE) RecvMultishotLimit(fd FD, each, total int, flags int, group uint16) *SQE {
	e.RecvMultishot(fd, flags, group)
	e.raw.Len, e.raw.FileIndex = byteCount(each), byteCount(total)
	return e
}

// RecvMsg is recvmsg(2). The message, its vector and buffers belong to the
// operation until its completion. (5.3)
func (e *SQE) RecvMsg(fd FD, m *Msg, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_RECVMSG, Flags: fd.flags(), Fd: fd.n,
		Addr: sys.Addr(m), Len: 1, OpFlags: uint32(flags)}}
	return e
}

// RecvMsgMultishot receives messages repeatedly into provided buffers of
// the group, each with a header: see [ParseMultishotMsg]. Of m only the sizes of the room
// for the address and control data count; they are read at submission. It ends as
// [SQE.RecvMultishot] does, where an empty datagram is one without a payload, or
// with EFAULT when a buffer is too short for the header and the room. (6.0)
func (e *SQE) RecvMsgMultishot(fd FD, m *Msg, flags int, group uint16) *SQE {
	e.RecvMsg(fd, m, flags)
	e.raw.Flags |= abi.IOSQE_BUFFER_SELECT
	e.raw.Ioprio, e.raw.BufIndex = abi.IORING_RECV_MULTISHOT, group
	return e
}

// RecvZC receives without a copy into the area of the registered interface
// queue ifq (see [Ring.RegisterZCRX]). It is always multishot. n bounds the total;
// 0 means no bound. (6.15)
func (e *SQE) RecvZC(fd FD, n int, ifq uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_RECV_ZC, Flags: fd.flags(), Fd: fd.n,
		Ioprio: abi.IORING_RECV_MULTISHOT, Len: byteCount(n), FileIndex: ifq}}
	return e
}
