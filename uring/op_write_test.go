// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpWrite, row{since: "5.6", uses: []string{"SQE.Write", "SQE.SetRWFlags", "SQE.SetAttr"}, goldens: []golden{
		{"write", func(e *uring.SQE) { e.Write(uring.Fd(3), goldenBuf, 4096) },
			abi.SQE{Opcode: 23, Fd: 3, Off: 4096, Addr: goldenBufAddr, Len: 300}},
		{"current-position", func(e *uring.SQE) { e.Write(uring.FixedFd(3), goldenBuf[:1], -1) },
			abi.SQE{Opcode: 23, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenBufAddr, Len: 1}},
		{"long", func(e *uring.SQE) { e.Write(uring.Fd(3), goldenLong, 0) },
			abi.SQE{Opcode: 23, Fd: 3, Addr: goldenBufAddr, Len: 0x7ffff000}},
		{"rw-flags", func(e *uring.SQE) {
			e.Write(uring.Fd(3), goldenBuf, 0).SetRWFlags(uring.RWDSync | uring.RWSync | uring.RWAppend | uring.RWNoAppend | uring.RWAtomic)
		}, abi.SQE{Opcode: 23, Fd: 3, Addr: goldenBufAddr, Len: 300, OpFlags: 0x76}},
		{"attributes", func(e *uring.SQE) { e.Write(uring.Fd(3), goldenBuf, 0).SetAttr(&goldenAttr) },
			abi.SQE{Opcode: 23, Fd: 3, Addr: goldenBufAddr, Len: 300, Addr3: addressOf(&goldenAttr), Pad2: 1}},
	}})
	ledgerOp(uring.OpWriteFixed, row{since: "5.1", uses: []string{"SQE.WriteFixed"}, goldens: []golden{
		{"fixed", func(e *uring.SQE) { e.WriteFixed(uring.Fd(3), goldenBuf[2:4], 8, 0xfffe) },
			abi.SQE{Opcode: 5, Fd: 3, Off: 8, Addr: goldenBufAddr + 2, Len: 2, BufIndex: 0xfffe}},
		{"fixed-file", func(e *uring.SQE) { e.WriteFixed(uring.FixedFd(3), goldenBuf, -1, 0).SetRWFlags(uring.RWDSync) },
			abi.SQE{Opcode: 5, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenBufAddr, Len: 300, OpFlags: 2}},
	}})
	ledgerOp(uring.OpWritev, row{since: "5.1", uses: []string{"SQE.Writev"}, goldens: []golden{
		{"writev", func(e *uring.SQE) { e.Writev(uring.Fd(3), goldenIov, 512, 0) },
			abi.SQE{Opcode: 2, Fd: 3, Off: 512, Addr: goldenIovAddr, Len: 2}},
		{"fixed-file", func(e *uring.SQE) { e.Writev(uring.FixedFd(3), goldenIov, -1, uring.RWDSync|uring.RWAppend) },
			abi.SQE{Opcode: 2, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenIovAddr, Len: 2, OpFlags: 0x12}},
	}})
	ledgerOp(uring.OpWritevFixed, row{since: "6.15", uses: []string{"SQE.WritevFixed"}, goldens: []golden{
		{"writev-fixed", func(e *uring.SQE) { e.WritevFixed(uring.Fd(3), goldenIov, 512, uring.RWDSync, 9) },
			abi.SQE{Opcode: 61, Fd: 3, Off: 512, Addr: goldenIovAddr, Len: 2, OpFlags: 2, BufIndex: 9}},
		{"fixed-file", func(e *uring.SQE) { e.WritevFixed(uring.FixedFd(3), goldenIov[:1], -1, 0, 0) },
			abi.SQE{Opcode: 61, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenIovAddr, Len: 1}},
	}})
}
