// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// NetFlags modify a send or a receive, in addition to the MSG_ flags.
type NetFlags uint16

const (
	NetPollFirst  NetFlags = abi.IORING_RECVSEND_POLL_FIRST  // wait for readiness before trying (5.19)
	NetReportZC   NetFlags = abi.IORING_SEND_ZC_REPORT_USAGE // report in the notification whether data was copied (6.2)
	NetVectorized NetFlags = abi.IORING_SEND_VECTORIZED      // set by the builders that take iovecs (6.17)
	NetBundle     NetFlags = abi.IORING_RECVSEND_BUNDLE      // set by the bundle builders (6.10)
)

// SetFixedBuffer makes [SQE.SendZC] (6.0) send a part of the registered buffer with the
// given index, or [SQE.SendMsgZC] (6.15) several parts of it.
func (e *SQE) SetFixedBuffer(index uint16) *SQE {
	e.raw.Ioprio |= abi.IORING_RECVSEND_FIXED_BUF
	e.raw.BufIndex = index
	return e
}

// SetNetFlags adds flags to a send or receive.
func (e *SQE) SetNetFlags(f NetFlags) *SQE { e.raw.Ioprio |= uint16(f); return e }

// Send is send(2) with its MSG_ flags; with MSG_WAITALL the kernel continues
// after a short send. p belongs to the operation until its completion. (5.6)
func (e *SQE) Send(fd FD, p []byte, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SEND, Flags: fd.flags(), Fd: fd.n,
		Addr: sys.SliceAddr(p), Len: byteCount(len(p)), OpFlags: uint32(flags)}}
	return e
}

// SetAddr gives [SQE.Send] (6.1) or [SQE.SendZC] (6.0) a destination, as in sendto(2).
// The address is read at submission.
func (e *SQE) SetAddr(addr *Sockaddr) *SQE {
	e.raw.Off = sys.Addr(&addr.b)
	e.raw.FileIndex = halves(uint16(addr.n), 0)
	return e
}

// SendBundle sends the provided buffers of a group, in order, until it is empty.
// It may complete several times, the last time without CQEMore; each completion
// names the first of the buffers that it covers (see [BufRing.TakeBundle]). It has no
// length: on kernels up to 6.18 a length would bound the first piece only, and the bytes
// that it cuts off a buffer would be lost. (6.10, FeatRecvSendBundle)
func (e *SQE) SendBundle(fd FD, flags int, group uint16) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SEND, Flags: fd.flags() | abi.IOSQE_BUFFER_SELECT, Fd: fd.n,
		Ioprio: abi.IORING_RECVSEND_BUNDLE, OpFlags: uint32(flags), BufIndex: group}}
	return e
}

// SendVec is [SQE.Send] of several buffers. (6.17)
func (e *SQE) SendVec(fd FD, iov []Iovec, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SEND, Flags: fd.flags(), Fd: fd.n, Ioprio: abi.IORING_SEND_VECTORIZED,
		Addr: sys.SliceAddr(iov), Len: count(len(iov)), OpFlags: uint32(flags)}}
	return e
}

// SendMsg is sendmsg(2). The message and its vector are read at submission;
// the buffers belong to the operation until its completion. (5.3)
func (e *SQE) SendMsg(fd FD, m *Msg, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SENDMSG, Flags: fd.flags(), Fd: fd.n,
		Addr: sys.Addr(m), Len: 1, OpFlags: uint32(flags)}}
	return e
}

// SendZC is [SQE.Send] without a copy. It completes twice, even when it failed:
// with the result and CQEMore, then with CQENotif. p belongs to the operation until the
// second completion. If the first has no CQEMore, there is no second. With NetReportZC
// the notification's result is negative when data was copied after all, otherwise 0.
// The result is EOPNOTSUPP for a socket without support, and EINVAL with SQESkipSuccess.
// (6.0)
func (e *SQE) SendZC(fd FD, p []byte, flags int, zc NetFlags) *SQE {
	e.Send(fd, p, flags)
	e.raw.Opcode, e.raw.Ioprio = abi.IORING_OP_SEND_ZC, uint16(zc)
	return e
}

// SendMsgZC is [SQE.SendMsg] without a copy; see [SQE.SendZC]. (6.1)
func (e *SQE) SendMsgZC(fd FD, m *Msg, flags int, zc NetFlags) *SQE {
	e.SendMsg(fd, m, flags)
	e.raw.Opcode, e.raw.Ioprio = abi.IORING_OP_SENDMSG_ZC, uint16(zc)
	return e
}
