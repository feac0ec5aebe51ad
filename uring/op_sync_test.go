// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpFsync, row{since: "5.1", uses: []string{"SQE.Fsync", "SQE.FsyncRange"}, goldens: []golden{
		{"fsync", func(e *uring.SQE) { e.Fsync(uring.Fd(3), false) },
			abi.SQE{Opcode: 3, Fd: 3}},
		{"fdatasync", func(e *uring.SQE) { e.Fsync(uring.FixedFd(3), true) },
			abi.SQE{Opcode: 3, Flags: 1, Fd: 3, OpFlags: 1}},
		{"range", func(e *uring.SQE) { e.FsyncRange(uring.Fd(3), 1<<40, 4096, false) },
			abi.SQE{Opcode: 3, Fd: 3, Off: 1 << 40, Len: 4096}},
		{"range-data", func(e *uring.SQE) { e.FsyncRange(uring.FixedFd(3), 0, 1<<32-1, true) },
			abi.SQE{Opcode: 3, Flags: 1, Fd: 3, Len: 1<<32 - 1, OpFlags: 1}},
		// The kernel treats an empty range at an offset as no range.
		{"range-to-end", func(e *uring.SQE) { e.FsyncRange(uring.Fd(3), 8192, 0, true) },
			abi.SQE{Opcode: 3, Fd: 3, OpFlags: 1}},
	}})
	ledgerOp(uring.OpSyncFileRange, row{since: "5.2", uses: []string{"SQE.SyncFileRange"}, goldens: []golden{
		{"sync-file-range", func(e *uring.SQE) { e.SyncFileRange(uring.Fd(3), 1<<40, 4096, 7) },
			abi.SQE{Opcode: 8, Fd: 3, Off: 1 << 40, Len: 4096, OpFlags: 7}},
		{"fixed-file", func(e *uring.SQE) { e.SyncFileRange(uring.FixedFd(3), 0, 0, 2) },
			abi.SQE{Opcode: 8, Flags: 1, Fd: 3, OpFlags: 2}},
	}})
	ledgerOp(uring.OpFallocate, row{since: "5.6", uses: []string{"SQE.Fallocate"}, goldens: []golden{
		{"fallocate", func(e *uring.SQE) { e.Fallocate(uring.Fd(3), 0, 4096, 1<<40) },
			abi.SQE{Opcode: 17, Fd: 3, Off: 4096, Addr: 1 << 40}},
		{"punch-hole", func(e *uring.SQE) { e.Fallocate(uring.FixedFd(3), 1|2, 0, 8) },
			abi.SQE{Opcode: 17, Flags: 1, Fd: 3, Addr: 8, Len: 3}},
	}})
	ledgerOp(uring.OpFtruncate, row{since: "6.9", uses: []string{"SQE.Ftruncate"}, goldens: []golden{
		{"ftruncate", func(e *uring.SQE) { e.Ftruncate(uring.Fd(3), 1<<40) },
			abi.SQE{Opcode: 55, Fd: 3, Off: 1 << 40}},
		{"fixed-file", func(e *uring.SQE) { e.Ftruncate(uring.FixedFd(3), 0) },
			abi.SQE{Opcode: 55, Flags: 1, Fd: 3}},
	}})
}
