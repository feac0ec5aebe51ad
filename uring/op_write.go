// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Write writes p at an offset, as pwrite(2): the result is the count, which may
// be short. p belongs to the operation until its completion. (5.6)
func (e *SQE) Write(fd FD, p []byte, off int64) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WRITE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(p), Len: byteCount(len(p))}}
	return e
}

// WriteFixed is [SQE.Write] from a part of registered buffer number index.
// (5.1)
func (e *SQE) WriteFixed(fd FD, p []byte, off int64, index uint16) *SQE {
	e.Write(fd, p, off)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_WRITE_FIXED, index
	return e
}

// Writev writes several buffers, as pwritev2(2) with its RWF_ flags. (5.1)
func (e *SQE) Writev(fd FD, iov []Iovec, off int64, flags RWFlags) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_WRITEV, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: sys.SliceAddr(iov), Len: count(len(iov)), OpFlags: uint32(flags)}}
	return e
}

// WritevFixed is [SQE.Writev] from parts of one registered buffer. (6.15)
func (e *SQE) WritevFixed(fd FD, iov []Iovec, off int64, flags RWFlags, index uint16) *SQE {
	e.Writev(fd, iov, off, flags)
	e.raw.Opcode, e.raw.BufIndex = abi.IORING_OP_WRITEV_FIXED, index
	return e
}
