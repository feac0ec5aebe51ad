// SPDX-License-Identifier: MIT

package uring_test

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerOp(uring.OpAsyncCancel, row{
		since:   "5.5",
		uses:    []string{"SQE.Cancel", "SQE.CancelWith", "CancelOptions"},
		goldens: cancelGoldens,
		kernel:  kernelCancel,
	})
}

var cancelGoldens = []golden{
	{"user data", func(e *uring.SQE) { e.Cancel(0x1122334455667788) },
		abi.SQE{Opcode: 14, Fd: -1, Addr: 0x1122334455667788}},
	{"user data all", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{UserData: 5, All: true}) },
		abi.SQE{Opcode: 14, Fd: -1, Addr: 5, OpFlags: 1 << 0}},
	{"fd", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(7)}) },
		abi.SQE{Opcode: 14, Fd: 7, OpFlags: 1 << 1}},
	{"fd all", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(7), All: true}) },
		abi.SQE{Opcode: 14, Fd: 7, OpFlags: 1<<1 | 1<<0}},
	// Not with IOSQE_FIXED_FILE: the entry itself has no file.
	{"fd fixed", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(7)}) },
		abi.SQE{Opcode: 14, Fd: 7, OpFlags: 1<<1 | 1<<3}},
	{"any", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{Any: true}) },
		abi.SQE{Opcode: 14, Fd: -1, OpFlags: 1 << 2}},
	{"any all", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{Any: true, All: true}) },
		abi.SQE{Opcode: 14, Fd: -1, OpFlags: 1<<2 | 1<<0}},
	{"op", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpRecv}) },
		abi.SQE{Opcode: 14, Fd: -1, Len: 27, OpFlags: 1 << 5}},
	{"op all", func(e *uring.SQE) { e.CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpPollAdd, All: true}) },
		abi.SQE{Opcode: 14, Fd: -1, Len: 6, OpFlags: 1<<5 | 1<<0}},
	{"fd and user data", func(e *uring.SQE) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(7), ByUserData: true, UserData: 0x1122334455667788})
	},
		abi.SQE{Opcode: 14, Fd: 7, Addr: 0x1122334455667788, OpFlags: 1<<1 | 1<<4}},
	{"fd fixed and user data all", func(e *uring.SQE) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(7), ByUserData: true, UserData: 5, All: true})
	},
		abi.SQE{Opcode: 14, Fd: 7, Addr: 5, OpFlags: 1<<0 | 1<<1 | 1<<3 | 1<<4}},
	{"fd and op", func(e *uring.SQE) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(7), ByOp: true, Op: uring.OpRecv})
	},
		abi.SQE{Opcode: 14, Fd: 7, Len: 27, OpFlags: 1<<1 | 1<<5}},
	{"fd fixed and op all", func(e *uring.SQE) {
		e.CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(7), ByOp: true, Op: uring.OpPollAdd, All: true})
	},
		abi.SQE{Opcode: 14, Fd: 7, Len: 6, OpFlags: 1<<0 | 1<<1 | 1<<3 | 1<<5}},
}

func kernelCancel(t *testing.T) {
	t.Run("user data", func(t *testing.T) { ringtest.OverFlavours(t, cancelUserData) })
	t.Run("fd", func(t *testing.T) { ringtest.OverFlavours(t, cancelFD) })
	t.Run("any", func(t *testing.T) { ringtest.OverFlavours(t, cancelAny) })
	t.Run("op", func(t *testing.T) {
		ringtest.NeedKernel(t, "IORING_ASYNC_CANCEL_OP", "6.6")
		ringtest.OverFlavours(t, cancelOp)
		ringtest.OverFlavours(t, cancelBoth)
	})
	t.Run("op futex", func(t *testing.T) {
		ringtest.NeedKernel(t, "futexes found by IORING_ASYNC_CANCEL_OP", "6.18")
		ringtest.OverFlavours(t, cancelOpFutex)
	})
	t.Run("close", func(t *testing.T) { ringtest.OverFlavours(t, cancelAfterClose) })
}

// pollForever arms polls that only a cancellation ends.
func pollForever(t *testing.T, r *uring.Ring, fd uring.FD, userData ...uint64) {
	for _, id := range userData {
		push(t, r).PollAdd(fd, pollIn).SetUserData(id)
	}
	wantQuiet(t, r)
}

// wantCancelled checks that the next completions are that of the cancellation, which has
// user data 100, and those of the cancelled operations.
func wantCancelled(t *testing.T, r *uring.Ring, answer int, userData ...uint64) {
	t.Helper()
	left := map[uint64]int{}
	for _, id := range userData {
		left[id]++
	}
	for _, c := range ringtest.Await(t, r, 1+len(userData)) {
		if c.UserData == 100 {
			wantRes(t, c, answer)
			continue
		}
		wantErrno(t, c, syscall.ECANCELED)
		if left[c.UserData]--; left[c.UserData] < 0 {
			t.Fatalf("completion %+v of an operation that was not cancelled", c)
		}
	}
	wantQuiet(t, r)
}

func cancelUserData(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	buf := make([]byte, 1)
	keep(t, buf)
	push(t, r).Read(fdOf(rd), buf, 0).SetUserData(1)
	pollForever(t, r, fdOf(rd), 2, 3, 3)
	push(t, r).Cancel(1).SetUserData(100)
	wantCancelled(t, r, 0, 1)
	push(t, r).Cancel(1).SetUserData(100)
	wantCancelled(t, r, -int(syscall.ENOENT))
	push(t, r).CancelWith(uring.CancelOptions{UserData: 1, All: true}).SetUserData(100)
	wantCancelled(t, r, 0) // the result is a count, not an error
	push(t, r).CancelWith(uring.CancelOptions{UserData: 3, All: true}).SetUserData(100)
	wantCancelled(t, r, 2, 3, 3)
	push(t, r).Timeout(anHour, 0, 0).SetUserData(4)
	push(t, r).Cancel(4).SetUserData(100)
	wantCancelled(t, r, 0, 4)
	push(t, r).Cancel(2).SetUserData(100)
	wantCancelled(t, r, 0, 2)
}

func cancelFD(t *testing.T, r *uring.Ring) {
	a, _ := osPipe(t)
	b, _ := osPipe(t)
	registerFiles(t, r, int(a.Fd()), int(b.Fd()))
	pollForever(t, r, fdOf(a), 1, 2)
	pollForever(t, r, fdOf(b), 3)
	pollForever(t, r, uring.FixedFd(1), 4)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(a), All: true}).SetUserData(100)
	wantCancelled(t, r, 2, 1, 2)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(a)}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.ENOENT))
	// Both ways to name a file find operations that were submitted with the other.
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(1), All: true}).SetUserData(100)
	wantCancelled(t, r, 2, 3, 4)
	pollForever(t, r, uring.FixedFd(0), 5)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(a)}).SetUserData(100)
	wantCancelled(t, r, 0, 5)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(7)}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.EBADF))
}

func cancelAny(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	for _, all := range []bool{false, true} {
		push(t, r).Timeout(anHour, 0, 0).SetUserData(1)
		pollForever(t, r, fdOf(rd), 2, 3)
		push(t, r).CancelWith(uring.CancelOptions{Any: true, All: all}).SetUserData(100)
		wantCancelled(t, r, 3, 1, 2, 3) // as documented, the result is the same with and without All
		push(t, r).CancelWith(uring.CancelOptions{Any: true, All: all}).SetUserData(100)
		wantCancelled(t, r, 0)
	}
}

func cancelOp(t *testing.T, r *uring.Ring) {
	rd, _ := osPipe(t)
	buf := make([]byte, 1)
	keep(t, buf)
	push(t, r).Read(fdOf(rd), buf, 0).SetUserData(1)
	pollForever(t, r, fdOf(rd), 2, 3)
	push(t, r).CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpPollAdd, All: true}).SetUserData(100)
	wantCancelled(t, r, 2, 2, 3)
	push(t, r).CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpPollAdd}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.ENOENT))
	push(t, r).CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpRead}).SetUserData(100)
	wantCancelled(t, r, 0, 1)
}

// cancelBoth cancels by descriptor and a second criterion.
func cancelBoth(t *testing.T, r *uring.Ring) {
	a, _ := osPipe(t)
	b, _ := osPipe(t)
	registerFiles(t, r, int(a.Fd()))
	pollForever(t, r, fdOf(a), 1, 2, 2)
	pollForever(t, r, fdOf(b), 2, 3)
	buf := make([]byte, 1)
	keep(t, buf)
	push(t, r).Read(fdOf(a), buf, 0).SetUserData(4)
	wantQuiet(t, r)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(a), ByUserData: true, UserData: 3}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.ENOENT))
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(0), ByUserData: true, UserData: 2, All: true}).SetUserData(100)
	wantCancelled(t, r, 2, 2, 2)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(b), ByOp: true, Op: uring.OpRead}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.ENOENT))
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(a), ByOp: true, Op: uring.OpRead}).SetUserData(100)
	wantCancelled(t, r, 0, 4)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: uring.FixedFd(0), ByOp: true, Op: uring.OpPollAdd, All: true}).SetUserData(100)
	wantCancelled(t, r, 1, 1)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: fdOf(b), ByUserData: true, UserData: 3}).SetUserData(100)
	wantCancelled(t, r, 0, 3)
	push(t, r).CancelWith(uring.CancelOptions{ByFD: true, FD: uring.Fd(unusedFD), ByUserData: true, UserData: 2}).SetUserData(100)
	wantCancelled(t, r, -int(syscall.EBADF))
	push(t, r).CancelWith(uring.CancelOptions{Any: true}).SetUserData(100)
	wantCancelled(t, r, 1, 2)
}

func cancelOpFutex(t *testing.T, r *uring.Ring) {
	word := new(atomic.Uint32)
	keep(t, word)
	for _, id := range []uint64{0, 1} {
		push(t, r).FutexWait(word, 0, futexAny, futexPrivate).SetUserData(id)
		wantQuiet(t, r)
		push(t, r).CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpPollAdd, All: true}).SetUserData(100)
		wantCancelled(t, r, 0)
		push(t, r).CancelWith(uring.CancelOptions{ByOp: true, Op: uring.OpFutexWait, All: true}).SetUserData(100)
		wantCancelled(t, r, 1, id)
	}
}

// cancelAfterClose checks that closing a descriptor ends no operation, and that the
// operation can still be found by its user data.
func cancelAfterClose(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	pollForever(t, r, fdOf(rd), 1)
	rd.Close()
	wantQuiet(t, r)
	write(t, wr, "x") // the operation holds the file open
	wantRes(t, await(t, r, 1), pollIn)

	rd, _ = osPipe(t)
	pollForever(t, r, fdOf(rd), 2)
	rd.Close()
	push(t, r).Cancel(2).SetUserData(100)
	wantCancelled(t, r, 0, 2)
}
