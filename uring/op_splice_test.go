// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpSplice, row{since: "5.7", uses: []string{"SQE.Splice"}, goldens: []golden{
		{"file-to-pipe", func(e *uring.SQE) {
			e.Splice(uring.Fd(3), 1<<40, uring.Fd(4), uring.CurrentPosition, 4096, uring.SpliceMove|uring.SpliceMore)
		}, abi.SQE{Opcode: 30, Fd: 4, Off: minusOne, Addr: 1 << 40, Len: 4096, OpFlags: 5, FileIndex: 3}},
		{"pipe-to-file", func(e *uring.SQE) {
			e.Splice(uring.Fd(3), uring.CurrentPosition, uring.Fd(4), 512, 1, uring.SpliceNonblock)
		}, abi.SQE{Opcode: 30, Fd: 4, Off: 512, Addr: minusOne, Len: 1, OpFlags: 2, FileIndex: 3}},
		{"fixed-in", func(e *uring.SQE) { e.Splice(uring.FixedFd(3), 0, uring.Fd(4), -1, 8, 0) },
			abi.SQE{Opcode: 30, Fd: 4, Off: minusOne, Len: 8, OpFlags: 1 << 31, FileIndex: 3}},
		{"fixed-out", func(e *uring.SQE) { e.Splice(uring.Fd(3), -1, uring.FixedFd(4), 0, 8, uring.SpliceMove) },
			abi.SQE{Opcode: 30, Flags: 1, Fd: 4, Addr: minusOne, Len: 8, OpFlags: 1, FileIndex: 3}},
		{"long", func(e *uring.SQE) { e.Splice(uring.FixedFd(3), 0, uring.FixedFd(4), -1, 1<<31-1, 0) },
			abi.SQE{Opcode: 30, Flags: 1, Fd: 4, Off: minusOne, Len: 0x7ffff000, OpFlags: 1 << 31, FileIndex: 3}},
	}})
	ledgerOp(uring.OpTee, row{since: "5.8", uses: []string{"SQE.Tee"}, goldens: []golden{
		{"tee", func(e *uring.SQE) { e.Tee(uring.Fd(3), uring.Fd(4), 4096, uring.SpliceNonblock) },
			abi.SQE{Opcode: 33, Fd: 4, Len: 4096, OpFlags: 2, FileIndex: 3}},
		{"fixed-in", func(e *uring.SQE) { e.Tee(uring.FixedFd(3), uring.Fd(4), 1, 0) },
			abi.SQE{Opcode: 33, Fd: 4, Len: 1, OpFlags: 1 << 31, FileIndex: 3}},
		{"fixed-out", func(e *uring.SQE) { e.Tee(uring.Fd(3), uring.FixedFd(4), 1, 0) },
			abi.SQE{Opcode: 33, Flags: 1, Fd: 4, Len: 1, FileIndex: 3}},
	}})
}
