// SPDX-License-Identifier: MIT

package uring_test

import (
	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpSend, row{
		since:   "5.6",
		uses:    []string{"SQE.Send", "SQE.SetAddr", "SQE.SendBundle", "SQE.SendVec", "SQE.SetBufferGroup", "SQE.SetNetFlags"},
		goldens: sendGoldens,
	})
	ledgerOp(uring.OpSendMsg, row{
		since: "5.3",
		uses:  []string{"SQE.SendMsg", "Msg.Set"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.SendMsg(uring.Fd(7), goldenMsg, 0x4000) },
				abi.SQE{Opcode: 9, Fd: 7, Addr: goldenMsgAt, Len: 1, OpFlags: 0x4000}},
			{"fixed poll first", func(e *uring.SQE) {
				e.SendMsg(uring.FixedFd(7), goldenMsg, 0).SetNetFlags(uring.NetPollFirst)
			}, abi.SQE{Opcode: 9, Flags: 0x01, Fd: 7, Ioprio: 1 << 0, Addr: goldenMsgAt, Len: 1}},
		},
	})
	ledgerOp(uring.OpSendZC, row{
		since:   "6.0",
		uses:    []string{"SQE.SendZC", "SQE.SetAddr", "SQE.SetFixedBuffer"},
		goldens: sendZCGoldens,
	})
	ledgerOp(uring.OpSendMsgZC, row{
		since:   "6.1",
		uses:    []string{"SQE.SendMsgZC", "SQE.SetFixedBuffer"},
		goldens: sendMsgZCGoldens,
	})
}

var (
	goldenMsg   = new(uring.Msg)
	goldenMsgAt = addressOf(goldenMsg)
)

// 0x40 is MSG_DONTWAIT, 0x100 MSG_WAITALL, 0x4000 MSG_NOSIGNAL.
var sendGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.Send(uring.Fd(7), goldenBuf, 0x4000|0x100) },
		abi.SQE{Opcode: 26, Fd: 7, Addr: goldenBufAddr, Len: 300, OpFlags: 0x4100}},
	{"fixed poll first", func(e *uring.SQE) {
		e.Send(uring.FixedFd(7), goldenBuf[:10], 0).SetNetFlags(uring.NetPollFirst)
	}, abi.SQE{Opcode: 26, Flags: 0x01, Fd: 7, Ioprio: 1 << 0, Addr: goldenBufAddr, Len: 10}},
	{"nothing", func(e *uring.SQE) { e.Send(uring.Fd(7), nil, 0) },
		abi.SQE{Opcode: 26, Fd: 7}},
	{"long", func(e *uring.SQE) { e.Send(uring.Fd(7), goldenLong, 0) },
		abi.SQE{Opcode: 26, Fd: 7, Addr: goldenBufAddr, Len: 0x7ffff000}},
	// The address is in addr2, its length in the low 16 bits of file_index.
	{"to", func(e *uring.SQE) { e.Send(uring.Fd(7), goldenBuf, 0x40).SetAddr(goldenSockaddr) },
		abi.SQE{Opcode: 26, Fd: 7, Off: goldenSockaddrAt, Addr: goldenBufAddr, Len: 300, OpFlags: 0x40, FileIndex: 16}},
	{"group", func(e *uring.SQE) { e.Send(uring.Fd(7), nil, 0).SetBufferGroup(0x203) },
		abi.SQE{Opcode: 26, Flags: 0x20, Fd: 7, BufIndex: 0x203}},
	{"bundle", func(e *uring.SQE) { e.SendBundle(uring.Fd(7), 0x4000, 0x203) },
		abi.SQE{Opcode: 26, Flags: 0x20, Fd: 7, Ioprio: 1 << 4, OpFlags: 0x4000, BufIndex: 0x203}},
	{"bundle fixed", func(e *uring.SQE) { e.SendBundle(uring.FixedFd(7), 0, 1) },
		abi.SQE{Opcode: 26, Flags: 0x20 | 0x01, Fd: 7, Ioprio: 1 << 4, BufIndex: 1}},
	{"vector", func(e *uring.SQE) { e.SendVec(uring.Fd(7), goldenIov, 0x4000) },
		abi.SQE{Opcode: 26, Fd: 7, Ioprio: 1 << 5, Addr: goldenIovAddr, Len: 2, OpFlags: 0x4000}},
	{"vector fixed", func(e *uring.SQE) { e.SendVec(uring.FixedFd(7), goldenIov[:1], 0) },
		abi.SQE{Opcode: 26, Flags: 0x01, Fd: 7, Ioprio: 1 << 5, Addr: goldenIovAddr, Len: 1}},
}

var sendZCGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.SendZC(uring.Fd(7), goldenBuf, 0x4000, 0) },
		abi.SQE{Opcode: 47, Fd: 7, Addr: goldenBufAddr, Len: 300, OpFlags: 0x4000}},
	{"report fixed fd", func(e *uring.SQE) { e.SendZC(uring.FixedFd(7), goldenBuf, 0, uring.NetReportZC|uring.NetPollFirst) },
		abi.SQE{Opcode: 47, Flags: 0x01, Fd: 7, Ioprio: 1<<3 | 1<<0, Addr: goldenBufAddr, Len: 300}},
	{"to", func(e *uring.SQE) { e.SendZC(uring.Fd(7), goldenBuf, 0, 0).SetAddr(goldenSockaddr) },
		abi.SQE{Opcode: 47, Fd: 7, Off: goldenSockaddrAt, Addr: goldenBufAddr, Len: 300, FileIndex: 16}},
	{"registered buffer", func(e *uring.SQE) { e.SendZC(uring.Fd(7), goldenBuf[:9], 0, uring.NetReportZC).SetFixedBuffer(0x203) },
		abi.SQE{Opcode: 47, Fd: 7, Ioprio: 1<<2 | 1<<3, Addr: goldenBufAddr, Len: 9, BufIndex: 0x203}},
	{"registered buffer to", func(e *uring.SQE) {
		e.SendZC(uring.FixedFd(7), goldenBuf[:9], 0x4000, uring.NetReportZC).SetFixedBuffer(0x203).SetAddr(goldenSockaddr)
	}, abi.SQE{Opcode: 47, Flags: 0x01, Fd: 7, Ioprio: 1<<2 | 1<<3, Off: goldenSockaddrAt, Addr: goldenBufAddr, Len: 9, OpFlags: 0x4000,
		BufIndex: 0x203, FileIndex: 16}},
}

var sendMsgZCGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.SendMsgZC(uring.Fd(7), goldenMsg, 0x4000, 0) },
		abi.SQE{Opcode: 48, Fd: 7, Addr: goldenMsgAt, Len: 1, OpFlags: 0x4000}},
	{"report fixed fd", func(e *uring.SQE) { e.SendMsgZC(uring.FixedFd(7), goldenMsg, 0, uring.NetReportZC) },
		abi.SQE{Opcode: 48, Flags: 0x01, Fd: 7, Ioprio: 1 << 3, Addr: goldenMsgAt, Len: 1}},
	{"registered buffer", func(e *uring.SQE) { e.SendMsgZC(uring.Fd(7), goldenMsg, 0, 0).SetFixedBuffer(0x203) },
		abi.SQE{Opcode: 48, Fd: 7, Ioprio: 1 << 2, Addr: goldenMsgAt, Len: 1, BufIndex: 0x203}},
}
