// SPDX-License-Identifier: MIT

package uring_test

import (
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

var (
	goldenHow   = uring.OpenHow{Flags: 2, Mode: 0o600, Resolve: 8}
	goldenFDs   = []int32{4, 5, -1}
	goldenPair  [2]int32
	goldenFDsAt = addressOf(unsafe.SliceData(goldenFDs))
)

func init() {
	ledgerOp(uring.OpOpenAt, row{since: "5.6", uses: []string{"SQE.OpenAt", "SQE.SetSlot"}, goldens: []golden{
		{"open", func(e *uring.SQE) { e.OpenAt(uring.AtCWD, goldenPath, 0o2000102, 0o644) },
			abi.SQE{Opcode: 18, Fd: -100, Addr: goldenPathAddr, Len: 0o644, OpFlags: 0o2000102}},
		{"directory", func(e *uring.SQE) { e.OpenAt(7, goldenPath, 0, 0) },
			abi.SQE{Opcode: 18, Fd: 7, Addr: goldenPathAddr}},
		{"direct-first", func(e *uring.SQE) { e.OpenAt(7, goldenPath, 1, 2).SetSlot(0) },
			abi.SQE{Opcode: 18, Fd: 7, Addr: goldenPathAddr, Len: 2, OpFlags: 1, FileIndex: 1}},
		{"direct-auto", func(e *uring.SQE) { e.OpenAt(7, goldenPath, 1, 2).SetSlot(uring.SlotAuto) },
			abi.SQE{Opcode: 18, Fd: 7, Addr: goldenPathAddr, Len: 2, OpFlags: 1, FileIndex: 0xffffffff}},
		// A number beyond every table must not become "any free slot".
		{"direct-far", func(e *uring.SQE) { e.OpenAt(7, goldenPath, 1, 2).SetSlot(uring.SlotAuto - 1) },
			abi.SQE{Opcode: 18, Fd: 7, Addr: goldenPathAddr, Len: 2, OpFlags: 1, FileIndex: 0xfffffffe}},
	}})
	ledgerOp(uring.OpOpenAt2, row{since: "5.6", uses: []string{"SQE.OpenAt2", "SQE.SetSlot"}, goldens: []golden{
		{"open", func(e *uring.SQE) { e.OpenAt2(uring.AtCWD, goldenPath, &goldenHow) },
			abi.SQE{Opcode: 28, Fd: -100, Off: addressOf(&goldenHow), Addr: goldenPathAddr, Len: 24}},
		{"direct", func(e *uring.SQE) { e.OpenAt2(7, goldenPath, &goldenHow).SetSlot(41) },
			abi.SQE{Opcode: 28, Fd: 7, Off: addressOf(&goldenHow), Addr: goldenPathAddr, Len: 24, FileIndex: 42}},
		{"direct-auto", func(e *uring.SQE) { e.OpenAt2(7, goldenPath, &goldenHow).SetSlot(uring.SlotAuto) },
			abi.SQE{Opcode: 28, Fd: 7, Off: addressOf(&goldenHow), Addr: goldenPathAddr, Len: 24, FileIndex: 0xffffffff}},
	}})
	ledgerOp(uring.OpClose, row{since: "5.6", uses: []string{"SQE.Close", "SQE.CloseDirect"}, goldens: []golden{
		{"close", func(e *uring.SQE) { e.Close(7) },
			abi.SQE{Opcode: 19, Fd: 7}},
		{"direct", func(e *uring.SQE) { e.CloseDirect(7) },
			abi.SQE{Opcode: 19, FileIndex: 8}},
		{"direct-first", func(e *uring.SQE) { e.CloseDirect(0) },
			abi.SQE{Opcode: 19, FileIndex: 1}},
	}})
	ledgerOp(uring.OpFixedFDInstall, row{since: "6.8", uses: []string{"SQE.FixedFDInstall"}, goldens: []golden{
		{"install", func(e *uring.SQE) { e.FixedFDInstall(7, false) },
			abi.SQE{Opcode: 54, Flags: 1, Fd: 7}},
		{"keep-on-exec", func(e *uring.SQE) { e.FixedFDInstall(0, true) },
			abi.SQE{Opcode: 54, Flags: 1, OpFlags: 1}},
	}})
	ledgerOp(uring.OpFilesUpdate, row{since: "5.6", uses: []string{"SQE.FilesUpdate"}, goldens: []golden{
		{"update", func(e *uring.SQE) { e.FilesUpdate(goldenFDs, 9) },
			abi.SQE{Opcode: 20, Fd: -1, Off: 9, Addr: goldenFDsAt, Len: 3}},
		{"allocate", func(e *uring.SQE) { e.FilesUpdate(goldenFDs[1:], uring.FilesAlloc) },
			abi.SQE{Opcode: 20, Fd: -1, Off: 0xffffffff, Addr: goldenFDsAt + 4, Len: 2}},
	}})
	ledgerOp(uring.OpPipe, row{since: "6.16", uses: []string{"SQE.Pipe", "SQE.SetSlot"}, goldens: []golden{
		{"pipe", func(e *uring.SQE) { e.Pipe(&goldenPair, 0o2004000) },
			abi.SQE{Opcode: 62, Addr: addressOf(&goldenPair), OpFlags: 0o2004000}},
		{"direct", func(e *uring.SQE) { e.Pipe(&goldenPair, 0).SetSlot(5) },
			abi.SQE{Opcode: 62, Addr: addressOf(&goldenPair), FileIndex: 6}},
		{"direct-auto", func(e *uring.SQE) { e.Pipe(&goldenPair, 0o4000).SetSlot(uring.SlotAuto) },
			abi.SQE{Opcode: 62, Addr: addressOf(&goldenPair), OpFlags: 0o4000, FileIndex: 0xffffffff}},
	}})
}
