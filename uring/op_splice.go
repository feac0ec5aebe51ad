// SPDX-License-Identifier: MIT

package uring

import "github.com/ringside-io/ringside/internal/abi"

// SpliceFlags are the SPLICE_F_ flags of splice(2) and tee(2).
type SpliceFlags uint32

const (
	SpliceMove     SpliceFlags = 1 // SPLICE_F_MOVE
	SpliceNonblock SpliceFlags = 2 // SPLICE_F_NONBLOCK
	SpliceMore     SpliceFlags = 4 // SPLICE_F_MORE
)

// Splice is splice(2): n bytes from in to out, one of which is a pipe. An
// offset of a pipe must be [CurrentPosition], which for a file means its own
// position. A worker thread runs it. (5.7)
func (e *SQE) Splice(in FD, inOff int64, out FD, outOff int64, n int, flags SpliceFlags) *SQE {
	e.Tee(in, out, n, flags)
	e.raw.Opcode, e.raw.Off, e.raw.Addr = abi.IORING_OP_SPLICE, uint64(outOff), uint64(inOff)
	return e
}

// Tee is tee(2): it copies n bytes from one pipe to another without consuming
// them. (5.8)
func (e *SQE) Tee(in, out FD, n int, flags SpliceFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_TEE, Flags: out.flags(), Fd: out.n,
		Len: byteCount(n), OpFlags: uint32(flags), FileIndex: uint32(in.n)}}
	if in.fixed {
		e.raw.OpFlags |= abi.SPLICE_F_FD_IN_FIXED
	}
	return e
}
