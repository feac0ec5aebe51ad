// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// AcceptFlags modify an accept.
type AcceptFlags uint16

const (
	AcceptDontWait  AcceptFlags = abi.IORING_ACCEPT_DONTWAIT   // EAGAIN instead of waiting (6.10)
	AcceptPollFirst AcceptFlags = abi.IORING_ACCEPT_POLL_FIRST // wait before trying (6.10)
)

// Accept is accept4(2): the result is the connection's descriptor. flags are
// SOCK_CLOEXEC and SOCK_NONBLOCK. addr may be nil; otherwise it receives the
// peer and belongs to the operation until its completion. (5.5)
func (e *SQE) Accept(fd FD, addr *Sockaddr, flags int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_ACCEPT, Flags: fd.flags(), Fd: fd.n, OpFlags: uint32(flags)}}
	if addr != nil {
		addr.Reset()
		e.raw.Addr, e.raw.Off = sys.Addr(&addr.b), sys.Addr(&addr.n)
	}
	return e
}

// AcceptMultishot accepts repeatedly, until a completion without CQEMore. (5.19)
func (e *SQE) AcceptMultishot(fd FD, flags int) *SQE {
	e.Accept(fd, nil, flags)
	e.raw.Ioprio = abi.IORING_ACCEPT_MULTISHOT
	return e
}

// SetAcceptFlags adds flags to an accept.
func (e *SQE) SetAcceptFlags(f AcceptFlags) *SQE { e.raw.Ioprio |= uint16(f); return e }

// Connect is connect(2). The address is read at submission. (5.5)
func (e *SQE) Connect(fd FD, addr *Sockaddr) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_CONNECT, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(addr.n), Addr: sys.Addr(&addr.b)}}
	return e
}

// Socket is socket(2); the result is the descriptor. (5.19)
func (e *SQE) Socket(domain, typ, protocol int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SOCKET, Fd: int32(domain), Off: uint64(uint32(typ)), Len: uint32(protocol)}}
	return e
}

// Bind is bind(2). (6.11)
func (e *SQE) Bind(fd FD, addr *Sockaddr) *SQE {
	e.Connect(fd, addr).raw.Opcode = abi.IORING_OP_BIND
	return e
}

// Listen is listen(2). (6.11)
func (e *SQE) Listen(fd FD, backlog int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_LISTEN, Flags: fd.flags(), Fd: fd.n, Len: uint32(backlog)}}
	return e
}

// Shutdown is shutdown(2): how is SHUT_RD (0), SHUT_WR (1) or SHUT_RDWR (2).
// (5.11)
func (e *SQE) Shutdown(fd FD, how int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_SHUTDOWN, Flags: fd.flags(), Fd: fd.n, Len: uint32(how)}}
	return e
}
