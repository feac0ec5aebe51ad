// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

var goldenStatx uring.Statx

// atCWD is AT_FDCWD as it is stored in the unsigned len.
const atCWD = 1<<32 - 100

func init() {
	ledgerOp(uring.OpStatx, row{since: "5.6", uses: []string{"SQE.Statx"}, goldens: []golden{
		{"statx", func(e *uring.SQE) { e.Statx(uring.AtCWD, goldenPath, 0x100, 0x7ff, &goldenStatx) },
			abi.SQE{Opcode: 21, Fd: -100, Off: addressOf(&goldenStatx), Addr: goldenPathAddr, Len: 0x7ff, OpFlags: 0x100}},
		{"directory", func(e *uring.SQE) { e.Statx(7, goldenPath, 0, 0, &goldenStatx) },
			abi.SQE{Opcode: 21, Fd: 7, Off: addressOf(&goldenStatx), Addr: goldenPathAddr}},
	}})
	ledgerOp(uring.OpRenameAt, row{since: "5.11", uses: []string{"SQE.RenameAt"}, goldens: []golden{
		{"rename", func(e *uring.SQE) { e.RenameAt(uring.AtCWD, goldenPath, uring.AtCWD, goldenNew, 1) },
			abi.SQE{Opcode: 35, Fd: -100, Off: goldenNewAddr, Addr: goldenPathAddr, Len: atCWD, OpFlags: 1}},
		{"directories", func(e *uring.SQE) { e.RenameAt(7, goldenPath, 8, goldenNew, 0) },
			abi.SQE{Opcode: 35, Fd: 7, Off: goldenNewAddr, Addr: goldenPathAddr, Len: 8}},
	}})
	ledgerOp(uring.OpUnlinkAt, row{since: "5.11", uses: []string{"SQE.UnlinkAt"}, goldens: []golden{
		{"file", func(e *uring.SQE) { e.UnlinkAt(uring.AtCWD, goldenPath, 0) },
			abi.SQE{Opcode: 36, Fd: -100, Addr: goldenPathAddr}},
		{"directory", func(e *uring.SQE) { e.UnlinkAt(7, goldenPath, 0x200) },
			abi.SQE{Opcode: 36, Fd: 7, Addr: goldenPathAddr, OpFlags: 0x200}},
	}})
	ledgerOp(uring.OpMkdirAt, row{since: "5.15", uses: []string{"SQE.MkdirAt"}, goldens: []golden{
		{"mkdir", func(e *uring.SQE) { e.MkdirAt(uring.AtCWD, goldenPath, 0o755) },
			abi.SQE{Opcode: 37, Fd: -100, Addr: goldenPathAddr, Len: 0o755}},
	}})
	ledgerOp(uring.OpSymlinkAt, row{since: "5.15", uses: []string{"SQE.SymlinkAt"}, goldens: []golden{
		{"symlink", func(e *uring.SQE) { e.SymlinkAt(goldenPath, 7, goldenNew) },
			abi.SQE{Opcode: 38, Fd: 7, Off: goldenNewAddr, Addr: goldenPathAddr}},
		{"cwd", func(e *uring.SQE) { e.SymlinkAt(goldenPath, uring.AtCWD, goldenNew) },
			abi.SQE{Opcode: 38, Fd: -100, Off: goldenNewAddr, Addr: goldenPathAddr}},
	}})
	ledgerOp(uring.OpLinkAt, row{since: "5.15", uses: []string{"SQE.LinkAt"}, goldens: []golden{
		{"link", func(e *uring.SQE) { e.LinkAt(uring.AtCWD, goldenPath, uring.AtCWD, goldenNew, 0x400) },
			abi.SQE{Opcode: 39, Fd: -100, Off: goldenNewAddr, Addr: goldenPathAddr, Len: atCWD, OpFlags: 0x400}},
		{"directories", func(e *uring.SQE) { e.LinkAt(7, goldenPath, 8, goldenNew, 0) },
			abi.SQE{Opcode: 39, Fd: 7, Off: goldenNewAddr, Addr: goldenPathAddr, Len: 8}},
	}})
}
