// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// UringCmd sends a command that the file's driver defines: NVMe passthrough,
// ublk and so on. The command data of 16 bytes, or of 80 with SQE128 (see
// [BigSQE.Cmd]), is set afterwards with [SQE.SetCmd]. (5.19)
func (e *SQE) UringCmd(fd FD, cmd uint32) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_URING_CMD, Flags: fd.flags(), Fd: fd.n, Off: cmdOp(cmd)}}
	return e
}

// SetCmd copies up to 16 bytes of command data into the entry.
func (e *SQE) SetCmd(data []byte) *SQE {
	copy(sys.Bytes(e)[48:], data)
	return e
}

// SocketInq queries a socket's receive queue: the result is its length in bytes, EINVAL for
// a listening socket, or EOPNOTSUPP for a Unix socket. (6.5)
func (e *SQE) SocketInq(fd FD) *SQE { return e.UringCmd(fd, abi.SOCKET_URING_OP_SIOCINQ) }

// SocketOutq is [SQE.SocketInq] for a socket's send queue. (6.5)
func (e *SQE) SocketOutq(fd FD) *SQE { return e.UringCmd(fd, abi.SOCKET_URING_OP_SIOCOUTQ) }

// GetSockOpt is getsockopt(2) for the level SOL_SOCKET. The result is the length of the
// value, or EOPNOTSUPP for another level. val belongs to the operation until its
// completion. (6.7)
func (e *SQE) GetSockOpt(fd FD, level, name int, val []byte) *SQE {
	return e.sockOpt(abi.SOCKET_URING_OP_GETSOCKOPT, fd, level, name, val)
}

// SetSockOpt is setsockopt(2), for every level. val belongs to the operation
// until its completion. (6.7)
func (e *SQE) SetSockOpt(fd FD, level, name int, val []byte) *SQE {
	return e.sockOpt(abi.SOCKET_URING_OP_SETSOCKOPT, fd, level, name, val)
}

func (e *SQE) sockOpt(cmd uint32, fd FD, level, name int, val []byte) *SQE {
	e.UringCmd(fd, cmd)
	e.raw.Addr = words(uint32(level), uint32(name))
	e.raw.FileIndex, e.raw.Addr3 = count(len(val)), sys.SliceAddr(val)
	return e
}

// SocketTxTimestamps reports transmit timestamps, multishot, as 32-byte
// completions: Big holds seconds and nanoseconds, Res the key of the packet. It
// needs a ring with CQE32 or CQEMixed, and a socket with SO_TIMESTAMPING that
// asks for SOF_TIMESTAMPING_OPT_TSONLY. (6.17)
func (e *SQE) SocketTxTimestamps(fd FD) *SQE {
	return e.UringCmd(fd, abi.SOCKET_URING_OP_TX_TIMESTAMP)
}

// BlockDiscard discards n bytes at an offset of a block device: the data is
// lost. (6.12)
func (e *SQE) BlockDiscard(fd FD, off, n uint64) *SQE {
	e.UringCmd(fd, abi.BLOCK_URING_CMD_DISCARD)
	e.raw.Addr, e.raw.Addr3 = off, n
	return e
}

// cmdOp encodes cmd_op, the first half of its word.
func cmdOp(cmd uint32) uint64 { return words(cmd, 0) }
