// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpRecv, row{
		since: "5.6",
		uses: []string{"SQE.Recv", "SQE.RecvSelect", "SQE.RecvBundle", "SQE.RecvMultishot",
			"SQE.RecvMultishotLimit", "SQE.SetNetFlags"},
		goldens: recvGoldens,
	})
	ledgerOp(uring.OpRecvMsg, row{
		since:   "5.3",
		uses:    []string{"SQE.RecvMsg", "SQE.RecvMsgMultishot", "ParseMultishotMsg", "Msg.Addr"},
		goldens: recvMsgGoldens,
	})
	ledgerOp(uring.OpRecvZC, row{
		since:   "6.15",
		uses:    []string{"SQE.RecvZC", "Ring.RegisterZCRX"},
		goldens: recvZCGoldens,
		reason:  "needs a network card that splits headers from data and steers flows to a queue; only the refusal can be tried",
	})
}

// 0x100 is MSG_WAITALL, 0x2 MSG_PEEK.
var recvGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.Recv(uring.Fd(7), goldenBuf, 0x100) },
		abi.SQE{Opcode: 27, Fd: 7, Addr: goldenBufAddr, Len: 300, OpFlags: 0x100}},
	{"fixed poll first", func(e *uring.SQE) {
		e.Recv(uring.FixedFd(7), goldenBuf[:10], 0x2).SetNetFlags(uring.NetPollFirst)
	}, abi.SQE{Opcode: 27, Flags: 0x01, Fd: 7, Ioprio: 1 << 0, Addr: goldenBufAddr, Len: 10, OpFlags: 0x2}},
	{"long", func(e *uring.SQE) { e.Recv(uring.Fd(7), goldenLong, 0) },
		abi.SQE{Opcode: 27, Fd: 7, Addr: goldenBufAddr, Len: 0x7ffff000}},
	{"select", func(e *uring.SQE) { e.RecvSelect(uring.Fd(7), 0, 0, 0x203) },
		abi.SQE{Opcode: 27, Flags: 0x20, Fd: 7, BufIndex: 0x203}},
	{"select bounded fixed", func(e *uring.SQE) { e.RecvSelect(uring.FixedFd(7), 100, 0x2, 1) },
		abi.SQE{Opcode: 27, Flags: 0x20 | 0x01, Fd: 7, Len: 100, OpFlags: 0x2, BufIndex: 1}},
	{"bundle", func(e *uring.SQE) { e.RecvBundle(uring.Fd(7), 0, 0, 0x203) },
		abi.SQE{Opcode: 27, Flags: 0x20, Fd: 7, Ioprio: 1 << 4, BufIndex: 0x203}},
	{"multishot", func(e *uring.SQE) { e.RecvMultishot(uring.Fd(7), 0x40, 0x203) },
		abi.SQE{Opcode: 27, Flags: 0x20, Fd: 7, Ioprio: 1 << 1, OpFlags: 0x40, BufIndex: 0x203}},
	{"multishot bundle fixed", func(e *uring.SQE) {
		e.RecvMultishot(uring.FixedFd(7), 0, 1).SetNetFlags(uring.NetBundle | uring.NetPollFirst)
	}, abi.SQE{Opcode: 27, Flags: 0x20 | 0x01, Fd: 7, Ioprio: 1<<1 | 1<<4 | 1<<0, BufIndex: 1}},
	// The total is in optlen, which shares a field with file_index.
	{"multishot limit", func(e *uring.SQE) { e.RecvMultishotLimit(uring.Fd(7), 100, 1000, 0, 1) },
		abi.SQE{Opcode: 27, Flags: 0x20, Fd: 7, Ioprio: 1 << 1, Len: 100, BufIndex: 1, FileIndex: 1000}},
}

var recvMsgGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.RecvMsg(uring.Fd(7), goldenMsg, 0x100) },
		abi.SQE{Opcode: 10, Fd: 7, Addr: goldenMsgAt, Len: 1, OpFlags: 0x100}},
	{"fixed poll first", func(e *uring.SQE) {
		e.RecvMsg(uring.FixedFd(7), goldenMsg, 0).SetNetFlags(uring.NetPollFirst)
	}, abi.SQE{Opcode: 10, Flags: 0x01, Fd: 7, Ioprio: 1 << 0, Addr: goldenMsgAt, Len: 1}},
	{"select", func(e *uring.SQE) { e.RecvMsg(uring.Fd(7), goldenMsg, 0).SetBufferGroup(0x203) },
		abi.SQE{Opcode: 10, Flags: 0x20, Fd: 7, Addr: goldenMsgAt, Len: 1, BufIndex: 0x203}},
	{"multishot", func(e *uring.SQE) { e.RecvMsgMultishot(uring.Fd(7), goldenMsg, 0x20, 0x203) },
		abi.SQE{Opcode: 10, Flags: 0x20, Fd: 7, Ioprio: 1 << 1, Addr: goldenMsgAt, Len: 1, OpFlags: 0x20, BufIndex: 0x203}},
	{"multishot fixed", func(e *uring.SQE) { e.RecvMsgMultishot(uring.FixedFd(7), goldenMsg, 0, 1) },
		abi.SQE{Opcode: 10, Flags: 0x20 | 0x01, Fd: 7, Ioprio: 1 << 1, Addr: goldenMsgAt, Len: 1, BufIndex: 1}},
}

// The queue's index shares a field with file_index; multishot is required.
var recvZCGoldens = []golden{
	{"endless", func(e *uring.SQE) { e.RecvZC(uring.Fd(7), 0, 3) },
		abi.SQE{Opcode: 58, Fd: 7, Ioprio: 1 << 1, FileIndex: 3}},
	{"bounded fixed", func(e *uring.SQE) { e.RecvZC(uring.FixedFd(7), 4096, 0) },
		abi.SQE{Opcode: 58, Flags: 0x01, Fd: 7, Ioprio: 1 << 1, Len: 4096}},
}
