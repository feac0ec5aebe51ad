// SPDX-License-Identifier: MIT

package uring_test

import (
	"net/netip"
	"reflect"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/uring"
)

// forBuildersWith calls test for each builder with a parameter of type T. Its function
// builds the entry with v as that argument, and with zero values or pointers to them as the
// others.
func forBuildersWith[T any](t *testing.T, test func(t *testing.T, name string, build func(v T) abi.SQE)) {
	found := 0
	for m := range reflect.TypeFor[*uring.SQE]().Methods() {
		at := -1
		var args []reflect.Value
		for i := 1; i < m.Type.NumIn(); i++ {
			in := m.Type.In(i)
			if in == reflect.TypeFor[T]() {
				at = i
			}
			if in.Kind() == reflect.Pointer {
				args = append(args, reflect.New(in.Elem()))
			} else {
				args = append(args, reflect.Zero(in))
			}
		}
		if at < 0 {
			continue
		}
		found++
		t.Run(m.Name, func(t *testing.T) {
			test(t, m.Name, func(v T) abi.SQE {
				e := new(uring.SQE)
				args[at-1] = reflect.ValueOf(v)
				m.Func.Call(append([]reflect.Value{reflect.ValueOf(e)}, args...))
				return abi.SQE(*e.Raw())
			})
		})
	}
	if found == 0 {
		t.Fatal("no builder takes one")
	}
}

// TestEveryFixedFD builds each entry that names a file with a descriptor and with a slot:
// the entries differ by IOSQE_FIXED_FILE only. Goldens cover the exceptions.
func TestEveryFixedFD(t *testing.T) {
	exceptions := map[string]bool{"CancelFD": true, "CancelFDUserData": true, "CancelFDOp": true, "EpollCtl": true}
	forBuildersWith(t, func(t *testing.T, name string, build func(fd uring.FD) abi.SQE) {
		if exceptions[name] {
			return
		}
		plain, fixed := build(uring.Fd(7)), build(uring.FixedFd(7))
		if plain.Flags&1 != 0 {
			t.Errorf("a descriptor is sent as a slot: %s", sqeString(plain))
		}
		if plain.Flags |= 1; plain != fixed {
			t.Errorf("with a descriptor %s\nwith a slot %s", sqeString(plain), sqeString(fixed))
		}
	})
}

// TestEverySlot builds each entry that fills a slot: file_index is one above the slot's
// number, because 0 means none.
func TestEverySlot(t *testing.T) {
	forBuildersWith(t, func(t *testing.T, name string, build func(s uring.Slot) abi.SQE) {
		for slot, want := range map[uring.Slot]uint32{0: 1, 5: 6, uring.SlotAuto: 0xffffffff} {
			if e := build(slot); e.FileIndex != want {
				t.Errorf("slot %d: file_index %#x in %s", slot, e.FileIndex, sqeString(e))
			}
		}
	})
}

func init() {
	ledgerOp(uring.OpAccept, row{
		since: "5.5",
		uses: []string{"SQE.Accept", "SQE.AcceptMultishot",
			"SQE.SetAcceptFlags", "SQE.SetSlot"},
		goldens: acceptGoldens,
	})
	ledgerOp(uring.OpConnect, row{
		since: "5.5",
		uses:  []string{"SQE.Connect"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.Connect(uring.Fd(7), goldenSockaddr) },
				abi.SQE{Opcode: 16, Fd: 7, Off: 16, Addr: goldenSockaddrAt}},
			{"fixed unix", func(e *uring.SQE) { e.Connect(uring.FixedFd(7), goldenUnix) },
				abi.SQE{Opcode: 16, Flags: 0x01, Fd: 7, Off: 2 + 5 + 1, Addr: addressOf(goldenUnix)}},
		},
	})
	ledgerOp(uring.OpSocket, row{
		since: "5.19",
		uses:  []string{"SQE.Socket", "SQE.SetSlot"},
		goldens: []golden{
			{"stream", func(e *uring.SQE) { e.Socket(2, 1|0x80000, 6) }, // SOCK_CLOEXEC
				abi.SQE{Opcode: 45, Fd: 2, Off: 0x80001, Len: 6}},
			{"direct", func(e *uring.SQE) { e.Socket(10, 2, 17).SetSlot(3) },
				abi.SQE{Opcode: 45, Fd: 10, Off: 2, Len: 17, FileIndex: 4}},
			{"direct auto", func(e *uring.SQE) { e.Socket(1, 1, 0).SetSlot(uring.SlotAuto) },
				abi.SQE{Opcode: 45, Fd: 1, Off: 1, FileIndex: 0xffffffff}},
		},
	})
	ledgerOp(uring.OpBind, row{
		since: "6.11",
		uses:  []string{"SQE.Bind"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.Bind(uring.Fd(7), goldenSockaddr) },
				abi.SQE{Opcode: 56, Fd: 7, Off: 16, Addr: goldenSockaddrAt}},
			{"fixed", func(e *uring.SQE) { e.Bind(uring.FixedFd(7), goldenSockaddr) },
				abi.SQE{Opcode: 56, Flags: 0x01, Fd: 7, Off: 16, Addr: goldenSockaddrAt}},
		},
	})
	ledgerOp(uring.OpListen, row{
		since: "6.11",
		uses:  []string{"SQE.Listen"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.Listen(uring.Fd(7), 128) },
				abi.SQE{Opcode: 57, Fd: 7, Len: 128}},
			{"fixed", func(e *uring.SQE) { e.Listen(uring.FixedFd(7), 1) },
				abi.SQE{Opcode: 57, Flags: 0x01, Fd: 7, Len: 1}},
		},
	})
	ledgerOp(uring.OpShutdown, row{
		since: "5.11",
		uses:  []string{"SQE.Shutdown"},
		goldens: []golden{
			{"fd", func(e *uring.SQE) { e.Shutdown(uring.Fd(7), 2) },
				abi.SQE{Opcode: 34, Fd: 7, Len: 2}},
			{"fixed", func(e *uring.SQE) { e.Shutdown(uring.FixedFd(7), 1) },
				abi.SQE{Opcode: 34, Flags: 0x01, Fd: 7, Len: 1}},
		},
	})
}

// Addresses that entries point to: the bytes come first in a Sockaddr, and their length
// follows after 128 bytes.
var (
	goldenSockaddr   = mustSockaddr("127.0.0.1:80")
	goldenSockaddrAt = addressOf(goldenSockaddr)
	goldenUnix       = mustUnix("/sock")
	goldenPeer       = new(uring.Sockaddr)
	goldenPeerAt     = addressOf(goldenPeer)
)

func mustSockaddr(s string) *uring.Sockaddr {
	addr, err := uring.NewSockaddr(netip.MustParseAddrPort(s))
	if err != nil {
		panic(err)
	}
	return addr
}

func mustUnix(path string) *uring.Sockaddr {
	addr, err := uring.NewUnixSockaddr(path)
	if err != nil {
		panic(err)
	}
	return addr
}

var acceptGoldens = []golden{
	{"fd", func(e *uring.SQE) { e.Accept(uring.Fd(7), nil, 0x80800) }, // SOCK_CLOEXEC|SOCK_NONBLOCK
		abi.SQE{Opcode: 13, Fd: 7, OpFlags: 0x80800}},
	{"fixed with address", func(e *uring.SQE) { e.Accept(uring.FixedFd(7), goldenPeer, 0) },
		abi.SQE{Opcode: 13, Flags: 0x01, Fd: 7, Off: goldenPeerAt + 128, Addr: goldenPeerAt}},
	{"flags", func(e *uring.SQE) {
		e.Accept(uring.Fd(7), nil, 0).SetAcceptFlags(uring.AcceptDontWait).SetAcceptFlags(uring.AcceptPollFirst)
	}, abi.SQE{Opcode: 13, Fd: 7, Ioprio: 1<<1 | 1<<2}},
	{"direct", func(e *uring.SQE) { e.Accept(uring.Fd(7), goldenPeer, 0x800).SetSlot(0) },
		abi.SQE{Opcode: 13, Fd: 7, Off: goldenPeerAt + 128, Addr: goldenPeerAt, OpFlags: 0x800, FileIndex: 1}},
	{"direct auto", func(e *uring.SQE) { e.Accept(uring.FixedFd(7), nil, 0).SetSlot(uring.SlotAuto) },
		abi.SQE{Opcode: 13, Flags: 0x01, Fd: 7, FileIndex: 0xffffffff}},
	{"multishot", func(e *uring.SQE) { e.AcceptMultishot(uring.Fd(7), 0x80000) },
		abi.SQE{Opcode: 13, Fd: 7, Ioprio: 1 << 0, OpFlags: 0x80000}},
	{"multishot poll first", func(e *uring.SQE) {
		e.AcceptMultishot(uring.FixedFd(7), 0).SetAcceptFlags(uring.AcceptPollFirst)
	}, abi.SQE{Opcode: 13, Flags: 0x01, Fd: 7, Ioprio: 1<<0 | 1<<2}},
	{"multishot direct", func(e *uring.SQE) { e.AcceptMultishot(uring.Fd(7), 0x800).SetSlot(uring.SlotAuto) },
		abi.SQE{Opcode: 13, Fd: 7, Ioprio: 1 << 0, OpFlags: 0x800, FileIndex: 0xffffffff}},
}
