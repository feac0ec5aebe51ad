// SPDX-License-Identifier: MIT

package uring_test

import (
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpRead, row{
		since:   "5.6",
		uses:    []string{"SQE.Read", "SQE.ReadSelect", "SQE.SetBufferGroup", "SQE.SetRWFlags", "SQE.SetAttr"},
		goldens: readGoldens,
	})
	ledgerOp(uring.OpReadFixed, row{since: "5.1", uses: []string{"SQE.ReadFixed"}, goldens: []golden{
		{"fixed", func(e *uring.SQE) { e.ReadFixed(uring.Fd(3), goldenBuf[:100], 4096, 0x102) },
			abi.SQE{Opcode: 4, Fd: 3, Off: 4096, Addr: goldenBufAddr, Len: 100, BufIndex: 0x102}},
		{"fixed-file", func(e *uring.SQE) { e.ReadFixed(uring.FixedFd(3), goldenBuf[1:], -1, 0) },
			abi.SQE{Opcode: 4, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenBufAddr + 1, Len: 299}},
		{"long", func(e *uring.SQE) { e.ReadFixed(uring.Fd(3), goldenLong, 0, 1) },
			abi.SQE{Opcode: 4, Fd: 3, Addr: goldenBufAddr, Len: 0x7ffff000, BufIndex: 1}},
	}})
	ledgerOp(uring.OpReadv, row{since: "5.1", uses: []string{"SQE.Readv"}, goldens: []golden{
		{"readv", func(e *uring.SQE) { e.Readv(uring.Fd(3), goldenIov, 1<<40, 0) },
			abi.SQE{Opcode: 1, Fd: 3, Off: 1 << 40, Addr: goldenIovAddr, Len: 2}},
		{"fixed-file", func(e *uring.SQE) { e.Readv(uring.FixedFd(0), goldenIov[:1], uring.CurrentPosition, uring.RWNoWait) },
			abi.SQE{Opcode: 1, Flags: 1, Off: minusOne, Addr: goldenIovAddr, Len: 1, OpFlags: 8}},
		{"flags", func(e *uring.SQE) { e.Readv(uring.Fd(3), nil, 0, uring.RWHighPri|uring.RWDontCache) },
			abi.SQE{Opcode: 1, Fd: 3, OpFlags: 0x81}},
	}})
	ledgerOp(uring.OpReadvFixed, row{since: "6.15", uses: []string{"SQE.ReadvFixed"}, goldens: []golden{
		{"readv-fixed", func(e *uring.SQE) { e.ReadvFixed(uring.Fd(3), goldenIov, 512, uring.RWNoWait, 9) },
			abi.SQE{Opcode: 60, Fd: 3, Off: 512, Addr: goldenIovAddr, Len: 2, OpFlags: 8, BufIndex: 9}},
		{"fixed-file", func(e *uring.SQE) { e.ReadvFixed(uring.FixedFd(3), goldenIov[1:], -1, 0, 0) },
			abi.SQE{Opcode: 60, Flags: 1, Fd: 3, Off: minusOne, Addr: goldenIovAddr + uint64(unsafe.Sizeof(uring.Iovec{})), Len: 1}},
	}})
}

var goldenAttr uring.AttrPI

var readGoldens = []golden{
	{"read", func(e *uring.SQE) { e.Read(uring.Fd(3), goldenBuf, 4096) },
		abi.SQE{Opcode: 22, Fd: 3, Off: 4096, Addr: goldenBufAddr, Len: 300}},
	{"far", func(e *uring.SQE) { e.Read(uring.Fd(1<<31-1), goldenBuf[5:6], 1<<63-1) },
		abi.SQE{Opcode: 22, Fd: 1<<31 - 1, Off: 1<<63 - 1, Addr: goldenBufAddr + 5, Len: 1}},
	{"current-position", func(e *uring.SQE) { e.Read(uring.Fd(3), goldenBuf, uring.CurrentPosition) },
		abi.SQE{Opcode: 22, Fd: 3, Off: minusOne, Addr: goldenBufAddr, Len: 300}},
	{"fixed-file", func(e *uring.SQE) { e.Read(uring.FixedFd(200), goldenBuf, 0) },
		abi.SQE{Opcode: 22, Flags: 1, Fd: 200, Addr: goldenBufAddr, Len: 300}},
	{"nil", func(e *uring.SQE) { e.Read(uring.Fd(3), nil, 0) },
		abi.SQE{Opcode: 22, Fd: 3}},
	{"long", func(e *uring.SQE) { e.Read(uring.Fd(3), goldenLong, 0) },
		abi.SQE{Opcode: 22, Fd: 3, Addr: goldenBufAddr, Len: 0x7ffff000}},
	{"select", func(e *uring.SQE) { e.ReadSelect(uring.Fd(3), 100, 8, 0x304) },
		abi.SQE{Opcode: 22, Flags: 0x20, Fd: 3, Off: 8, Len: 100, BufIndex: 0x304}},
	{"select-whole-buffer", func(e *uring.SQE) { e.ReadSelect(uring.FixedFd(3), 0, -1, 7) },
		abi.SQE{Opcode: 22, Flags: 0x21, Fd: 3, Off: minusOne, BufIndex: 7}},
	{"set-buffer-group", func(e *uring.SQE) { e.Read(uring.FixedFd(3), nil, 0).SetBufferGroup(7) },
		abi.SQE{Opcode: 22, Flags: 0x21, Fd: 3, BufIndex: 7}},
	{"rw-flags", func(e *uring.SQE) {
		e.Read(uring.Fd(3), goldenBuf, 0).SetRWFlags(uring.RWHighPri).SetRWFlags(uring.RWNoWait | uring.RWDontCache)
	}, abi.SQE{Opcode: 22, Fd: 3, Addr: goldenBufAddr, Len: 300, OpFlags: 0x89}},
	{"attributes", func(e *uring.SQE) { e.Read(uring.Fd(3), goldenBuf, 0).SetAttr(&goldenAttr) },
		abi.SQE{Opcode: 22, Fd: 3, Addr: goldenBufAddr, Len: 300, Addr3: addressOf(&goldenAttr), Pad2: 1}},
	{"all-setters", func(e *uring.SQE) {
		e.Read(uring.FixedFd(1), goldenBuf, 2).SetUserData(3).SetFlags(uring.SQEAsync).SetPersonality(4).SetIOPriority(5)
	}, abi.SQE{Opcode: 22, Flags: 0x11, Ioprio: 5, Fd: 1, Off: 2, Addr: goldenBufAddr, Len: 300, UserData: 3, Personality: 4}},
}

// TestAttrPI compares struct io_uring_attr_pi byte by byte.
func TestAttrPI(t *testing.T) {
	goldenAttr.Set(3, 0x0102, 1<<40, goldenBuf[:8])
	got := *(*abi.AttrPI)(unsafe.Pointer(&goldenAttr))
	want := abi.AttrPI{Flags: 3, AppTag: 0x0102, Len: 8, Addr: goldenBufAddr, Seed: 1 << 40}
	if got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
