// SPDX-License-Identifier: MIT

package uring_test

import (
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

// ctlTaskWork makes an operation of r complete through task work. Another thread causes the
// task work while this one runs without entering the kernel. ctlTaskWork reports whether
// the kernel set the flag before the completion was posted.
func ctlTaskWork(t *testing.T, r *uring.Ring, rd, wr int) (flagged bool) {
	t.Helper()
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1).SetUserData(9)
	ctlSubmit(t, r, 1)
	var ready, written atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !ready.Load() {
			runtime.Gosched()
		}
		ctlWrite(t, wr, []byte{1})
		written.Store(true)
	}()
	ready.Store(true)
	for !written.Load() { // no system call here
	}
	flagged = r.SQFlags()&uring.SQTaskrun != 0 && r.Ready() == 0
	<-done
	if c := ringtest.Await(t, r, 1)[0]; c.UserData != 9 || c.Res != 1 {
		t.Fatalf("completion %+v", c)
	}
	buf := make([]byte, 1)
	if c := ringtest.Do(t, r, func(e *uring.SQE) { e.Read(uring.Fd(rd), buf, 0) }); c.Res != 1 {
		t.Fatalf("read: %+v (%v)", c, c.Err())
	}
	runtime.KeepAlive(buf)
	return flagged
}

// kernelSetupCoopTaskrun looks for a completion that waits until its submitter enters the
// kernel, which never happens without the flag. The kernel and the runtime also interrupt
// threads for other reasons, so it may take several attempts.
func kernelSetupCoopTaskrun(t *testing.T) {
	ringtest.NeedKernel(t, "COOP_TASKRUN", "5.19")
	rd, wr := ctlPipe(t)
	plain := ctlRing(t, uring.Options{})
	for range 20 {
		if ctlTaskWork(t, plain, rd, wr) {
			t.Fatal("a completion waited for the submitter of a plain ring")
		}
	}
	coop := ctlRing(t, uring.Options{CoopTaskrun: true, TaskrunFlag: true})
	if len(ctlCPUs(t, 0)) == 1 || runtime.GOMAXPROCS(0) == 1 {
		ctlTaskWork(t, coop, rd, wr)
		t.Skip("needs two processors, to run while another thread causes a completion")
	}
	ctlUntil(t, "a completion that waits for the submitter", func() bool { return ctlTaskWork(t, coop, rd, wr) })
	if coop.SQFlags()&uring.SQTaskrun != 0 {
		t.Error("the flag stays after the completion")
	}
}

// kernelSetupTaskrunFlag checks that Reap fetches waiting completions because of the flag,
// and that the kernel sets no flag when the ring did not ask for it.
func kernelSetupTaskrunFlag(t *testing.T) {
	ringtest.NeedKernel(t, "TASKRUN_FLAG", "5.19")
	rd, wr := ctlPipe(t)
	coop := ctlRing(t, uring.Options{CoopTaskrun: true})
	for range 20 {
		if ctlTaskWork(t, coop, rd, wr) {
			t.Fatal("a ring without TASKRUN_FLAG shows it")
		}
	}
	r := ctlRing(t, uring.Options{CoopTaskrun: true, TaskrunFlag: true})
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1)
	ctlSubmit(t, r, 1)
	ctlElsewhere(func() { ctlWrite(t, wr, []byte{1}) })
	var dst [1]uring.CQE
	ctlUntil(t, "Reap alone brings the completion", func() bool { return r.Reap(dst[:]) == 1 })
}

func kernelSetupSingleIssuer(t *testing.T) {
	ringtest.NeedKernel(t, "SINGLE_ISSUER", "6.0")
	elsewhere := func(r *uring.Ring) (submit, register error) {
		ctlNext(t, r).Nop()
		ctlElsewhere(func() {
			_, submit = r.Submit()
			_, register = r.Probe()
		})
		ringtest.Await(t, r, 1)
		return submit, register
	}
	submit, register := elsewhere(ctlRing(t, uring.Options{SingleIssuer: true}))
	ctlErrno(t, "submit on another thread", submit, syscall.EEXIST)
	ctlErrno(t, "register on another thread", register, syscall.EEXIST)
	submit, register = elsewhere(ctlRing(t, uring.Options{}))
	ctlOK(t, "submit on another thread", submit)
	ctlOK(t, "register on another thread", register)

	// A disabled ring belongs to the thread that enables it.
	r := ctlRing(t, uring.Options{SingleIssuer: true, Disabled: true})
	ctlElsewhere(func() {
		ctlOK(t, "enable", r.Enable())
		ctlNops(t, r, 1, 3)
	})
	ctlNext(t, r).Nop()
	_, err := r.Submit()
	ctlErrno(t, "submit on the thread that opened the ring", err, syscall.EEXIST)
}

func kernelSetupDeferTaskrun(t *testing.T) {
	ringtest.NeedKernel(t, "DEFER_TASKRUN", "6.1")
	r := ctlRing(t, uring.Options{DeferTaskrun: true})
	if want := uring.SetupSingleIssuer | uring.SetupTaskrunFlag; r.SetupFlags()&want != want {
		t.Errorf("setup flags %#x", r.SetupFlags())
	}
	rd, wr := ctlPipe(t)
	for range 20 {
		if !ctlTaskWork(t, r, rd, wr) {
			t.Fatal("a completion arrived outside of a wait")
		}
	}
	// Entering the kernel for another purpose does not deliver completions either; Reap
	// does.
	ctlNext(t, r).PollAdd(uring.Fd(rd), 1).SetUserData(1)
	ctlSubmit(t, r, 1)
	ctlWrite(t, wr, []byte{1})
	ctlNext(t, r).Nop().SetUserData(2)
	ctlSubmit(t, r, 1)
	if r.Ready() != 1 {
		t.Errorf("%d completions before Reap, want the NOP's", r.Ready())
	}
	var dst [4]uring.CQE
	if n := r.Reap(dst[:]); n != 2 || dst[0].UserData != 2 || dst[1].UserData != 1 {
		t.Errorf("Reap: %d, %+v", n, dst[:n])
	}
	ctlElsewhere(func() {
		_, err := r.Wait(uring.WaitOptions{NoSubmit: true})
		ctlErrno(t, "a wait on another thread", err, syscall.EEXIST)
	})
}
