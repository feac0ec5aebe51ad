// SPDX-License-Identifier: MIT

package uring_test

import (
	"errors"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

func init() {
	ledgerRegister(uring.OpRegisterSyncCancel, row{since: "6.0", uses: []string{"Ring.SyncCancel", "CancelOptions"}, kernel: kernelRegisterSyncCancel})
}

func kernelRegisterSyncCancel(t *testing.T) {
	ringtest.NeedKernel(t, "SYNC_CANCEL", "6.0")
	ringtest.OverFlavours(t, syncCancel)
	t.Run("interrupted", syncCancelInterrupted)
	t.Run("busy", syncCancelBusy)
}

// pending arms a poll that never ends on its own, for each user data.
func pending(t *testing.T, r *uring.Ring, fd uring.FD, userData ...uint64) {
	t.Helper()
	for _, u := range userData {
		ctlNext(t, r).PollAdd(fd, 1).SetUserData(u)
		ctlSubmit(t, r, 1)
	}
	ctlUntil(t, "the kernel takes the entries", func() bool { return r.Pending() == 0 })
}

// canceled awaits the completions of what was cancelled, in any order.
func canceled(t *testing.T, r *uring.Ring, userData ...uint64) {
	t.Helper()
	want := map[uint64]int{}
	for _, u := range userData {
		want[u]++
	}
	for _, c := range ringtest.Await(t, r, len(userData)) {
		if want[c.UserData] == 0 || c.Errno() != syscall.ECANCELED {
			t.Fatalf("completion %+v (%v), want ECANCELED of %v", c, c.Err(), userData)
		}
		want[c.UserData]--
	}
}

func syncCancel(t *testing.T, r *uring.Ring) {
	a, _ := ctlPipe(t)
	b, _ := ctlPipe(t)
	ctlOK(t, "register", r.RegisterFiles([]int{a, b}))
	cancel := func(what string, o uring.CancelOptions, timeout time.Duration, want int, ended ...uint64) {
		t.Helper()
		n, err := r.SyncCancel(o, timeout)
		ctlOK(t, what, err)
		if n != want {
			t.Errorf("%s: %d, want %d", what, n, want)
		}
		canceled(t, r, ended...)
	}
	pending(t, r, uring.Fd(a), 1, 2, 3)
	pending(t, r, uring.Fd(b), 1, 4, 5)
	cancel("user data", uring.CancelOptions{UserData: 2}, 0, 0, 2)
	_, err := r.SyncCancel(uring.CancelOptions{UserData: 2}, 0)
	ctlErrno(t, "no match", err, syscall.ENOENT)
	cancel("user data, within a time", uring.CancelOptions{UserData: 3}, time.Minute, 0, 3)
	cancel("all of a user data", uring.CancelOptions{UserData: 1, All: true}, 0, 2, 1, 1)
	cancel("all of a descriptor", uring.CancelOptions{ByFD: true, FD: uring.Fd(b), All: true}, 0, 2, 4, 5)

	pending(t, r, uring.FixedFd(0), 6)
	pending(t, r, uring.FixedFd(1), 7)
	cancel("a slot", uring.CancelOptions{ByFD: true, FD: uring.FixedFd(1)}, 0, 0, 7)
	pending(t, r, uring.Fd(a), 8, 9)
	cancel("everything", uring.CancelOptions{Any: true}, 0, 3, 6, 8, 9)
	if n, err := r.SyncCancel(uring.CancelOptions{Any: true}, 0); n != 0 || err != nil {
		t.Errorf("everything of nothing: %d, %v", n, err)
	}
	if ctlHasKernel(t, "6.6") {
		pending(t, r, uring.Fd(a), 10)
		_, err := r.SyncCancel(uring.CancelOptions{ByOp: true, Op: uring.OpRead}, 0)
		ctlErrno(t, "an opcode without operations", err, syscall.ENOENT)
		cancel("an opcode", uring.CancelOptions{ByOp: true, Op: uring.OpPollAdd}, 0, 0, 10)
	}
	if r.SetupFlags()&uring.SetupSingleIssuer != 0 {
		ctlElsewhere(func() {
			_, err := r.SyncCancel(uring.CancelOptions{Any: true}, 0)
			ctlErrno(t, "on another thread", err, syscall.EEXIST)
		})
	}
}

// syncCancelBusy waits for the end of the operations that it cancels, while signals arrive
// continually: the call must return only when they have ended or its time is over.
func syncCancelBusy(t *testing.T) {
	r := ctlRing(t, uring.Options{})
	interrupted, late := false, false
	for range 6 {
		ctlUnpopulated(t, 64<<20, func(mem []byte) {
			ctlNext(t, r).Madvise(mem, ctlPopulateWrite).SetUserData(3).SetFlags(uring.SQEAsync)
			ctlSubmit(t, r, 1)
			_, err := r.SyncCancel(uring.CancelOptions{UserData: 3}, time.Microsecond)
			if late = late || errors.Is(err, syscall.ETIME); errors.Is(err, syscall.ETIME) {
				stop := ctlHarass(t, ctlThreadID())
				_, err = r.SyncCancel(uring.CancelOptions{UserData: 3}, time.Minute)
				interrupted = stop() > 1 || interrupted
			}
			for errors.Is(err, syscall.ENOENT) && r.Ready() == 0 {
				err = ctlInWindow(r, 3)
			}
			if err != nil && !errors.Is(err, syscall.ENOENT) {
				t.Fatalf("cancel: %v", err)
			}
			if r.Ready() != 1 {
				t.Error("the call came back before the operation had ended")
			}
			if c := ringtest.Await(t, r, 1)[0]; c.Res != 0 && c.Errno() != syscall.ECANCELED {
				t.Fatalf("completion %+v (%v)", c, c.Err())
			}
		})
	}
	if !late || !interrupted {
		t.Log("in no round did the operation outlast a timeout and a signal")
	}
}

// syncCancelInterrupted cancels an operation in a worker thread while signals arrive
// continually: the call must neither fail nor return before the operation has ended.
func syncCancelInterrupted(t *testing.T) {
	r := ctlRing(t, uring.Options{})
	for i := range uint64(20) {
		path, err := uring.NewPath(ctlFIFO(t))
		ctlOK(t, "path", err)
		ctlNext(t, r).OpenAt(uring.AtCWD, path, os.O_RDONLY, 0).SetUserData(i).SetFlags(uring.SQEAsync)
		ctlSubmit(t, r, 1)
		stop := ctlHarass(t, ctlThreadID())
		n, err := r.SyncCancel(uring.CancelOptions{UserData: i}, time.Minute)
		for errors.Is(err, syscall.ENOENT) && r.Ready() == 0 {
			err = ctlInWindow(r, i)
		}
		stop()
		// An earlier cancellation may still interrupt the worker thread and end the wait
		// early. The operation ends with ECANCELED or as an interrupted system call: EINTR,
		// or ERESTARTSYS (512).
		if n != 0 || err != nil && !errors.Is(err, syscall.ENOENT) || r.Ready() != 1 {
			t.Fatalf("cancel: %d, %v, %d completions", n, err, r.Ready())
		}
		if c := ringtest.Await(t, r, 1)[0]; c.UserData != i || c.Res >= 0 {
			t.Fatalf("completion %+v (%v)", c, c.Err())
		}
		runtime.KeepAlive(path)
	}
}

// ctlInWindow repeats the cancellation of an operation that a worker thread was just
// starting, which a cancellation does not find (seen on Linux 6.1). It returns ENOENT when
// the operation ended meanwhile, and nil when this call ended it.
func ctlInWindow(r *uring.Ring, userData uint64) error {
	runtime.Gosched()
	_, err := r.SyncCancel(uring.CancelOptions{UserData: userData}, time.Minute)
	return err
}
