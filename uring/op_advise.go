// SPDX-License-Identifier: MIT

package uring

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Fadvise is posix_fadvise(2). Lengths of 4 GiB and more are cut off there, as
// kernels before 6.10 know 32 bits only. (5.6)
func (e *SQE) Fadvise(fd FD, off, n int64, advice int) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_FADVISE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Len: uint32(min(n, 1<<32-1)), OpFlags: uint32(advice)}
	return e
}

// Fadvise64 is [SQE.Fadvise] with a 64-bit length. (6.10)
func (e *SQE) Fadvise64(fd FD, off, n int64, advice int) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_FADVISE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), Addr: uint64(n), OpFlags: uint32(advice)}
	return e
}

// Madvise is madvise(2) for whole pages of memory that does not belong to Go's
// heap. Of more than 4 GiB it advises the first 4. (5.6)
func (e *SQE) Madvise(p []byte, advice int) *SQE {
	*e = SQE{Opcode: abi.IORING_OP_MADVISE, Fd: -1,
		Addr: sys.SliceAddr(p), Len: count(len(p)), OpFlags: uint32(advice)}
	return e
}
