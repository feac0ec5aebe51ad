// SPDX-License-Identifier: MIT

package uring

import (
	"math"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/sys"
)

// Fadvise is posix_fadvise(2) for n bytes at an offset; n = 0 means to the end of
// the file. Kernels before 6.10 know 32 bits of a length: of one of 4 GiB or more
// they say EINVAL. (5.6)
func (e *SQE) Fadvise(fd FD, off, n int64, advice int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_FADVISE, Flags: fd.flags(), Fd: fd.n,
		Off: uint64(off), OpFlags: uint32(advice)}}
	if uint64(n) <= math.MaxUint32 {
		e.raw.Len = uint32(n)
	} else {
		e.raw.Addr = uint64(n)
	}
	return e
}

// Madvise is madvise(2) for whole pages of memory that does not belong to Go's
// heap. Kernels before 6.10 know 32 bits of a length: of one of 4 GiB or more
// they say EINVAL. (5.6)
func (e *SQE) Madvise(p []byte, advice int) *SQE {
	e.there()
	*e = SQE{RawSQE{Opcode: abi.IORING_OP_MADVISE, Fd: -1,
		Addr: sys.SliceAddr(p), OpFlags: uint32(advice)}}
	if n := uint64(len(p)); n <= math.MaxUint32 {
		e.raw.Len = uint32(n)
	} else {
		e.raw.Off = n
	}
	return e
}
