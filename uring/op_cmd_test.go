// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpUringCmd, row{
		since: "5.19",
		uses: []string{"SQE.UringCmd", "SQE.SetCmd", "BigSQE.Cmd", "SQE.SocketInq", "SQE.SocketOutq",
			"SQE.GetSockOpt", "SQE.SetSockOpt", "SQE.SocketTxTimestamps", "SQE.BlockDiscard"},
		goldens: cmdGoldens,
	})
}

var goldenCmd = []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17}

// The command is in the first half of off, level and option are in the halves of addr, the
// length is in optlen, and the value's address is in addr3.
var cmdGoldens = []golden{
	{"command", func(e *uring.SQE) { e.UringCmd(uring.Fd(7), 0xc0484e80) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 0xc0484e80}},
	{"command fixed", func(e *uring.SQE) { e.UringCmd(uring.FixedFd(7), 1) },
		abi.SQE{Opcode: 46, Flags: 0x01, Fd: 7, Off: 1}},
	{"data", func(e *uring.SQE) { e.UringCmd(uring.Fd(7), 1).SetCmd(goldenCmd) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 1, Addr3: 0x0807060504030201, Pad2: 0x100f0e0d0c0b0a09}},
	{"short data", func(e *uring.SQE) { e.UringCmd(uring.Fd(7), 1).SetCmd(goldenCmd[:3]) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 1, Addr3: 0x030201}},
	{"inq", func(e *uring.SQE) { e.SocketInq(uring.Fd(7)) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 0}},
	{"outq", func(e *uring.SQE) { e.SocketOutq(uring.FixedFd(7)) },
		abi.SQE{Opcode: 46, Flags: 0x01, Fd: 7, Off: 1}},
	{"getsockopt", func(e *uring.SQE) { e.GetSockOpt(uring.Fd(7), 1, 3, goldenBuf[:4]) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 2, Addr: 3<<32 | 1, FileIndex: 4, Addr3: goldenBufAddr}},
	{"setsockopt", func(e *uring.SQE) { e.SetSockOpt(uring.FixedFd(7), 6, 1, goldenBuf[:4]) },
		abi.SQE{Opcode: 46, Flags: 0x01, Fd: 7, Off: 3, Addr: 1<<32 | 6, FileIndex: 4, Addr3: goldenBufAddr}},
	{"timestamps", func(e *uring.SQE) { e.SocketTxTimestamps(uring.Fd(7)) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 4}},
	// _IO(0x12, 0); the range is in addr and addr3.
	{"discard", func(e *uring.SQE) { e.BlockDiscard(uring.Fd(7), 1<<40, 4096) },
		abi.SQE{Opcode: 46, Fd: 7, Off: 0x1200, Addr: 1 << 40, Addr3: 4096}},
}

func TestBigSQECmd(t *testing.T) {
	var big uring.BigSQE
	big.SQE().UringCmd(uring.Fd(7), 1)
	cmd := big.Cmd()
	if len(cmd) != 80 {
		t.Fatalf("%d bytes of command data, want 80", len(cmd))
	}
	for i := range cmd {
		cmd[i] = byte(i + 1)
	}
	want := native(abi.SQE{Opcode: 46, Fd: 7, Off: 1})
	want.Addr3, want.Pad2 = binary.NativeEndian.Uint64(cmd), binary.NativeEndian.Uint64(cmd[8:])
	if got := abi.SQE(*big[0].Raw()); got != want {
		t.Errorf("first half %s, want %s", sqeString(got), sqeString(want))
	}
	if rest := big[1].Raw(); rest.Opcode != 17 || binary.NativeEndian.AppendUint64(nil, rest.Pad2)[7] != 80 {
		t.Errorf("second half %s", sqeString(abi.SQE(*rest)))
	}
}
