// SPDX-License-Identifier: MIT

package uring_test

import (
	"math"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpFadvise, row{since: "5.6", uses: []string{"SQE.Fadvise"}, goldens: []golden{
		{"fadvise", func(e *uring.SQE) { e.Fadvise(uring.Fd(3), 1<<40, 4096, 4) },
			abi.SQE{Opcode: 24, Fd: 3, Off: 1 << 40, Len: 4096, OpFlags: 4}},
		{"32 bits", func(e *uring.SQE) { e.Fadvise(uring.FixedFd(3), 0, 1<<32-1, 3) },
			abi.SQE{Opcode: 24, Flags: 1, Fd: 3, Len: 0xffffffff, OpFlags: 3}},
		{"64 bits", func(e *uring.SQE) { e.Fadvise(uring.Fd(3), 8, 1<<40, 4) },
			abi.SQE{Opcode: 24, Fd: 3, Off: 8, Addr: 1 << 40, OpFlags: 4}},
		{"to the end", func(e *uring.SQE) { e.Fadvise(uring.FixedFd(3), 8, 0, 2) },
			abi.SQE{Opcode: 24, Flags: 1, Fd: 3, Off: 8, OpFlags: 2}},
	}})
	ledgerOp(uring.OpMadvise, row{since: "5.6", uses: []string{"SQE.Madvise"}, goldens: []golden{
		{"madvise", func(e *uring.SQE) { e.Madvise(goldenBuf, 4) },
			abi.SQE{Opcode: 25, Fd: -1, Addr: goldenBufAddr, Len: 300, OpFlags: 4}},
		{"64 bits", func(e *uring.SQE) { e.Madvise(goldenLong, 3) }, madviseLong},
	}})
}

// madviseLong has its 64-bit length in the field of the offset.
var madviseLong = func() abi.SQE {
	want := abi.SQE{Opcode: 25, Fd: -1, Addr: goldenBufAddr, OpFlags: 3}
	if n := uint64(len(goldenLong)); n > math.MaxUint32 {
		want.Off = n
	} else {
		want.Len = uint32(n) // where an int has 32 bits
	}
	return want
}()
