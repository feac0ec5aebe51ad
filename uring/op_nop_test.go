// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpNop, row{
		since: "5.1",
		uses: []string{"SQE.Nop", "SQE.NopWith", "SQE.SetUserData", "SQE.SetFlags",
			"SQE.SetPersonality", "SQE.SetIOPriority", "SQE.Raw"},
		goldens: nopGoldens,
		kernel:  kernelNop,
	})
}

var nopGoldens = []golden{
	{"nop", func(e *uring.SQE) { e.Nop() },
		abi.SQE{Opcode: 0, Fd: -1}},
	{"user-data", func(e *uring.SQE) { e.Nop().SetUserData(0x1122334455667788) },
		abi.SQE{Fd: -1, UserData: 0x1122334455667788}},
	{"flags", func(e *uring.SQE) {
		e.Nop().SetFlags(uring.SQEDrain | uring.SQELink).SetFlags(uring.SQEHardLink | uring.SQEAsync | uring.SQESkipSuccess)
	}, abi.SQE{Fd: -1, Flags: 0x02 | 0x04 | 0x08 | 0x10 | 0x40}},
	{"personality", func(e *uring.SQE) { e.Nop().SetPersonality(0x1234) },
		abi.SQE{Fd: -1, Personality: 0x1234}},
	{"io-priority", func(e *uring.SQE) { e.Nop().SetIOPriority(2<<13 | 7) },
		abi.SQE{Fd: -1, Ioprio: 2<<13 | 7}},
	{"raw", func(e *uring.SQE) { e.Nop().Raw().Addr3 = 9 },
		abi.SQE{Fd: -1, Addr3: 9}},
	{"with-nothing", func(e *uring.SQE) { e.NopWith(uring.NopOptions{Result: 3, FD: uring.Fd(3), BufIndex: 3}) },
		abi.SQE{Fd: -1}},
	{"inject", func(e *uring.SQE) { e.NopWith(uring.NopOptions{Inject: true, Result: -5}) },
		abi.SQE{Fd: -1, OpFlags: 1 << 0, Len: 0xfffffffb}},
	{"file", func(e *uring.SQE) { e.NopWith(uring.NopOptions{File: true, FD: uring.Fd(7)}) },
		abi.SQE{Fd: 7, OpFlags: 1 << 1}},
	{"fixed-file", func(e *uring.SQE) { e.NopWith(uring.NopOptions{File: true, FD: uring.FixedFd(7)}) },
		abi.SQE{Fd: 7, OpFlags: 1<<1 | 1<<2}},
	{"fixed-buffer", func(e *uring.SQE) { e.NopWith(uring.NopOptions{FixedBuffer: true, BufIndex: 0x203}) },
		abi.SQE{Fd: -1, OpFlags: 1 << 3, BufIndex: 0x203}},
	{"task-work", func(e *uring.SQE) { e.NopWith(uring.NopOptions{TaskWork: true}) },
		abi.SQE{Fd: -1, OpFlags: 1 << 4}},
	{"big", func(e *uring.SQE) { e.NopWith(uring.NopOptions{Big: true, BigValues: [2]uint64{1 << 40, 2}}) },
		abi.SQE{Fd: -1, OpFlags: 1 << 5, Off: 1 << 40, Addr: 2}},
}

func kernelNop(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		c := complete(t, r, func(e *uring.SQE) { e.Nop().SetUserData(1 << 63) })
		if c != (uring.CQE{UserData: 1 << 63}) {
			t.Errorf("completion %+v", c)
		}
		c = complete(t, r, func(e *uring.SQE) { e.Nop().SetPersonality(77) })
		wantErrno(t, c, syscall.EINVAL) // the buffer is not registered
	})
	t.Run("link", kernelNopLink)
	t.Run("inject", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_NOP_INJECT_RESULT", "6.10")
		ringtest.OverFlavours(t, kernelNopInject)
	})
	t.Run("resources", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_NOP_FILE", "6.13")
		ringtest.OverFlavours(t, kernelNopResources)
	})
	t.Run("task work", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_NOP_TW", "6.16")
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			wantRes(t, complete(t, r, func(e *uring.SQE) { e.NopWith(uring.NopOptions{TaskWork: true}) }), 0)
		})
	})
	t.Run("big", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_NOP_CQE32", "6.18")
		for name, o := range map[string]uring.Options{"cqe32": {CQE32: true}, "mixed": {CQEMixed: true}} {
			t.Run(name, func(t *testing.T) { kernelNopBig(t, ringtest.Open(t, &o)) })
		}
	})
}

// kernelNopLink checks that the flags of an entry reach the kernel: the failure of the
// first operation cancels the second.
func kernelNopLink(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		r.SQE().Close(unusedFD).SetFlags(uring.SQELink).SetUserData(1)
		r.SQE().Nop().SetUserData(2)
		for _, c := range ringtest.Await(t, r, 2) {
			wantErrno(t, c, map[uint64]syscall.Errno{1: syscall.EBADF, 2: syscall.ECANCELED}[c.UserData])
		}
	})
}

func kernelNopInject(t *testing.T, r *uring.Ring) {
	for _, res := range []int32{-int32(syscall.EIO), 0, 1 << 30} {
		c := complete(t, r, func(e *uring.SQE) { e.NopWith(uring.NopOptions{Inject: true, Result: res}) })
		wantRes(t, c, int(res))
	}
}

func kernelNopResources(t *testing.T, r *uring.Ring) {
	nop := func(o uring.NopOptions) uring.CQE {
		return complete(t, r, func(e *uring.SQE) { e.NopWith(o) })
	}
	f := tempFile(t, "content")
	wantRes(t, nop(uring.NopOptions{File: true, FD: uring.Fd(int(f.Fd()))}), 0)
	wantErrno(t, nop(uring.NopOptions{File: true, FD: uring.Fd(unusedFD)}), syscall.EBADF)
	wantErrno(t, nop(uring.NopOptions{File: true, FD: uring.FixedFd(1)}), syscall.EBADF)
	wantErrno(t, nop(uring.NopOptions{FixedBuffer: true}), syscall.EFAULT)

	registerFiles(t, r, -1, int(f.Fd()))
	registerBuffer(t, r, 4096)
	wantRes(t, nop(uring.NopOptions{File: true, FD: uring.FixedFd(1)}), 0)
	wantRes(t, nop(uring.NopOptions{FixedBuffer: true}), 0)
}

func kernelNopBig(t *testing.T, r *uring.Ring) {
	want := [2]uint64{0x0102030405060708, 0x1112131415161718}
	r.SQE().NopWith(uring.NopOptions{Big: true, BigValues: want}).SetUserData(5)
	if _, err := r.SubmitAndWait(1); err != nil {
		t.Fatal(err)
	}
	var got [2]uring.BigCQE
	if n := r.ReapBig(got[:]); n != 1 {
		t.Fatalf("%d completions", n)
	}
	wantRes(t, got[0].CQE, 0)
	if got[0].UserData != 5 || got[0].Big != want {
		t.Errorf("completion %+v, want the values %#x", got[0], want)
	}
}
