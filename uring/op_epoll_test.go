// SPDX-License-Identifier: MIT

package uring_test

import (
	"encoding/binary"
	"runtime"
	"testing"
	"unsafe"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpEpollCtl, row{
		since:   "5.6",
		uses:    []string{"SQE.EpollCtl", "NewEpollEvent"},
		goldens: epollCtlGoldens,
	})
	ledgerOp(uring.OpEpollWait, row{
		since: "6.15",
		uses:  []string{"SQE.EpollWait", "EpollEvent.Data"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.EpollWait(uring.Fd(7), goldenEvents) },
				abi.SQE{Opcode: 59, Fd: 7, Addr: addressOf(&goldenEvents[0]), Len: 3}},
			{"fixed", func(e *uring.SQE) { e.EpollWait(uring.FixedFd(7), goldenEvents[:1]) },
				abi.SQE{Opcode: 59, Flags: 0x01, Fd: 7, Addr: addressOf(&goldenEvents[0]), Len: 1}},
		},
	})
}

var (
	goldenEvents = make([]uring.EpollEvent, 3)
	goldenEvent  = uring.NewEpollEvent(0x80000001, 0x1122334455667788)
)

var epollCtlGoldens = []golden{
	{"add", func(e *uring.SQE) { e.EpollCtl(uring.Fd(7), 1, 8, &goldenEvent) },
		abi.SQE{Opcode: 29, Fd: 7, Off: 8, Addr: addressOf(&goldenEvent), Len: 1}},
	{"delete", func(e *uring.SQE) { e.EpollCtl(uring.Fd(7), 2, 8, nil) },
		abi.SQE{Opcode: 29, Fd: 7, Off: 8, Len: 2}},
	// The kernel would treat the slot as a descriptor, whatever the flag is.
	{"fixed", func(e *uring.SQE) { e.EpollCtl(uring.FixedFd(7), 3, 8, &goldenEvent) },
		abi.SQE{Opcode: 29, Fd: -1, Off: 8, Addr: addressOf(&goldenEvent), Len: 3}},
}

// TestEpollEventLayout compares the structure with the kernel's, which is packed on x86.
func TestEpollEventLayout(t *testing.T) {
	at := 8
	if runtime.GOARCH == "amd64" || runtime.GOARCH == "386" {
		at = 4
	}
	want := make([]byte, at+8)
	binary.NativeEndian.PutUint32(want, 0x80000001)
	binary.NativeEndian.PutUint64(want[at:], 0x1122334455667788)
	got := unsafe.Slice((*byte)(unsafe.Pointer(&goldenEvent)), unsafe.Sizeof(goldenEvent))
	if string(got) != string(want) {
		t.Errorf("struct epoll_event is\n%x, want\n%x", got, want)
	}
	if goldenEvent.Data() != 0x1122334455667788 {
		t.Errorf("data %#x", goldenEvent.Data())
	}
}
