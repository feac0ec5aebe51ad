// SPDX-License-Identifier: MIT

package uring_test

import (
	"slices"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// ebadfd is EBADFD, which only Linux defines.
const ebadfd = syscall.Errno(77)

func init() {
	ledgerOp(uring.OpMsgRing, row{
		since:   "5.18",
		uses:    []string{"SQE.MsgRing", "SQE.MsgRingFlags", "SQE.MsgRingFD"},
		goldens: msgRingGoldens,
		kernel:  kernelMsgRing,
	})
}

var msgRingGoldens = []golden{
	{"data", func(e *uring.SQE) { e.MsgRing(uring.Fd(7), 0x1122334455667788, 5) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 0x1122334455667788, Len: 5}},
	{"negative", func(e *uring.SQE) { e.MsgRing(uring.Fd(7), 1, -5) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 1, Len: 0xfffffffb}},
	{"fixed", func(e *uring.SQE) { e.MsgRing(uring.FixedFd(7), 1, 0) },
		abi.SQE{Opcode: 40, Flags: 0x01, Fd: 7, Off: 1}},
	{"flags", func(e *uring.SQE) { e.MsgRingFlags(uring.Fd(7), 1, 2, 0x00030001) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 1, Len: 2, OpFlags: 1 << 1, FileIndex: 0x00030001}},
	// The command is in addr, the source slot in addr3, and the slot to fill in file_index,
	// which is one above the slot's number.
	{"descriptor", func(e *uring.SQE) { e.MsgRingFD(uring.Fd(7), 3, 4, 9, false) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 9, Addr: 1, Addr3: 3, FileIndex: 5}},
	{"descriptor auto", func(e *uring.SQE) { e.MsgRingFD(uring.Fd(7), 3, uring.SlotAuto, 9, false) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 9, Addr: 1, Addr3: 3, FileIndex: 0xffffffff}},
	{"descriptor silent", func(e *uring.SQE) { e.MsgRingFD(uring.Fd(7), 0, 0, 9, true) },
		abi.SQE{Opcode: 40, Fd: 7, Off: 9, Addr: 1, OpFlags: 1 << 0, FileIndex: 1}},
}

func kernelMsgRing(t *testing.T) {
	ringtest.NeedOp(t, uring.OpMsgRing, "5.18")
	t.Run("data", func(t *testing.T) { ringtest.OverFlavours(t, msgRingData) })
	t.Run("overflow", func(t *testing.T) { ringtest.OverFlavours(t, msgRingOverflow) })
	t.Run("refused", func(t *testing.T) { ringtest.OverFlavours(t, msgRingRefused) })
	t.Run("flags", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_MSG_RING_FLAGS_PASS", "6.3")
		ringtest.OverFlavours(t, msgRingFlags)
	})
	t.Run("descriptor", func(t *testing.T) { ringtest.OverFlavours(t, msgRingFD) })
}

// source opens the ring that sends to the ring under test.
func source(t *testing.T) *uring.Ring {
	return ringtest.Open(t, &uring.Options{Entries: 16})
}

func msgRingData(t *testing.T, target *uring.Ring) {
	from := source(t)
	for _, want := range []uring.CQE{{UserData: 1 << 63, Res: 5}, {UserData: 1, Res: -5}, {UserData: 2}} {
		c := ringtest.Do(t, from, func(e *uring.SQE) { e.MsgRing(uring.Fd(target.FD()), want.UserData, want.Res) })
		wantRes(t, c, 0)
		if got := await(t, target, want.UserData); got != want {
			t.Errorf("the target got %+v, want %+v", got, want)
		}
	}
	// A ring sends to itself.
	push(t, target).MsgRing(uring.Fd(target.FD()), 3, 4).SetUserData(5)
	m := byUserData(t, target, 2)
	wantRes(t, m[3], 4)
	wantRes(t, m[5], 0)
}

func msgRingOverflow(t *testing.T, target *uring.Ring) {
	from := source(t)
	const n = 9
	for i := range n {
		push(t, from).MsgRing(uring.Fd(target.FD()), uint64(i), int32(i)).SetUserData(uint64(i))
	}
	for id, c := range byUserData(t, from, n) {
		if c.Res != 0 {
			t.Errorf("message %d: %v", id, c.Err())
		}
	}
	for id, c := range byUserData(t, target, n) {
		wantRes(t, c, int(id))
	}
}

func msgRingRefused(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.MsgRing(fdOf(rd), 1, 2) }), ebadfd)
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.MsgRing(uring.Fd(unusedFD), 1, 2) }), syscall.EBADF)
	disabled := ringtest.Open(t, &uring.Options{Entries: 1, Disabled: true})
	wantErrno(t, ringtest.Do(t, r, func(e *uring.SQE) { e.MsgRing(uring.Fd(disabled.FD()), 1, 2) }), ebadfd)
	if err := r.RegisterFiles([]int{r.FD()}); err == nil {
		t.Error("the fixed file table took a ring; it is documented to refuse rings")
	}
}

func msgRingFlags(t *testing.T, target *uring.Ring) {
	from := source(t)
	flags := uring.CQEMore | uring.CQENotif | uring.CQEBuffer | 77<<16
	c := ringtest.Do(t, from, func(e *uring.SQE) { e.MsgRingFlags(uring.Fd(target.FD()), 1, 2, flags) })
	wantRes(t, c, 0)
	if got := await(t, target, 1); got != (uring.CQE{UserData: 1, Res: 2, Flags: flags}) || got.BufferID() != 77 {
		t.Errorf("the target got %+v", got)
	}
}

// msgRingFD sends the read end of a pipe, closes it here, and reads in the
// target.
func msgRingFD(t *testing.T, target *uring.Ring) {
	from := source(t)
	rd, wr := osPipe(t)
	registerFiles(t, from, -1, int(rd.Fd()))
	rd.Close()
	if err := target.RegisterFilesSparse(4); err != nil {
		t.Fatal(err)
	}
	send := func(slot uring.Slot, silent bool) uring.CQE {
		push(t, from).MsgRingFD(uring.Fd(target.FD()), 1, slot, 9, silent)
		if _, err := from.Submit(); err != nil {
			t.Fatal(err)
		}
		runTaskWork(t, target) // the target may have to place the file itself
		return await(t, from, 0)
	}
	wantRes(t, send(2, false), 0)
	wantRes(t, await(t, target, 9), 0)
	slots := []int{2}
	for _, silent := range []bool{false, true} {
		slot := int(send(uring.SlotAuto, silent).Res)
		if slot < 0 || slot > 3 || slices.Contains(slots, slot) {
			t.Fatalf("automatic slot %d, taken are %v", slot, slots)
		}
		slots = append(slots, slot)
		if !silent {
			wantRes(t, await(t, target, 9), slot)
		}
	}
	wantQuiet(t, target)
	for _, slot := range slots {
		write(t, wr, "x")
		buf := make([]byte, 4)
		keep(t, buf)
		c := ringtest.Do(t, target, func(e *uring.SQE) { e.Read(uring.FixedFd(slot), buf, 0) })
		wantRes(t, c, 1)
	}
	wantErrno(t, ringtest.Do(t, from, func(e *uring.SQE) {
		e.MsgRingFD(uring.Fd(target.FD()), 0, 0, 9, false)
	}), syscall.EBADF)
	wantErrno(t, ringtest.Do(t, from, func(e *uring.SQE) {
		e.MsgRingFD(uring.Fd(from.FD()), 1, 0, 9, false)
	}), syscall.EINVAL)
}
