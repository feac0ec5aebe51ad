// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpFsetxattr, row{since: "5.19", uses: []string{"SQE.Fsetxattr"}, goldens: []golden{
		{"fsetxattr", func(e *uring.SQE) { e.Fsetxattr(uring.Fd(3), goldenName, goldenBuf[:5], 1) },
			abi.SQE{Opcode: 41, Fd: 3, Off: goldenBufAddr, Addr: goldenNameAddr, Len: 5, OpFlags: 1}},
		{"fixed-file", func(e *uring.SQE) { e.Fsetxattr(uring.FixedFd(3), goldenName, nil, 2) },
			abi.SQE{Opcode: 41, Flags: 1, Fd: 3, Addr: goldenNameAddr, OpFlags: 2}},
	}})
	ledgerOp(uring.OpSetxattr, row{since: "5.19", uses: []string{"SQE.Setxattr"}, goldens: []golden{
		{"setxattr", func(e *uring.SQE) { e.Setxattr(goldenPath, goldenName, goldenBuf[:5], 2) },
			abi.SQE{Opcode: 42, Off: goldenBufAddr, Addr: goldenNameAddr, Len: 5, OpFlags: 2, Addr3: goldenPathAddr}},
	}})
	ledgerOp(uring.OpFgetxattr, row{since: "5.19", uses: []string{"SQE.Fgetxattr"}, goldens: []golden{
		{"fgetxattr", func(e *uring.SQE) { e.Fgetxattr(uring.Fd(3), goldenName, goldenBuf) },
			abi.SQE{Opcode: 43, Fd: 3, Off: goldenBufAddr, Addr: goldenNameAddr, Len: 300}},
		{"fixed-file", func(e *uring.SQE) { e.Fgetxattr(uring.FixedFd(3), goldenName, nil) },
			abi.SQE{Opcode: 43, Flags: 1, Fd: 3, Addr: goldenNameAddr}},
	}})
	ledgerOp(uring.OpGetxattr, row{since: "5.19", uses: []string{"SQE.Getxattr"}, goldens: []golden{
		{"getxattr", func(e *uring.SQE) { e.Getxattr(goldenPath, goldenName, goldenBuf[2:]) },
			abi.SQE{Opcode: 44, Off: goldenBufAddr + 2, Addr: goldenNameAddr, Len: 298, Addr3: goldenPathAddr}},
		{"length-only", func(e *uring.SQE) { e.Getxattr(goldenPath, goldenName, nil) },
			abi.SQE{Opcode: 44, Addr: goldenNameAddr, Addr3: goldenPathAddr}},
	}})
}
