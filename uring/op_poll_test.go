// SPDX-License-Identifier: MIT

package uring_test

import (
	"syscall"
	"testing"

	"github.com/ringside-io/ringside/internal/abi"
	"github.com/ringside-io/ringside/internal/testing/ringtest"
	"github.com/ringside-io/ringside/uring"
)

const (
	pollIn  = 0x001
	pollPri = 0x002
	pollOut = 0x004
	pollErr = 0x008
	pollHup = 0x010
)

func init() {
	ledgerOp(uring.OpPollAdd, row{
		since:   "5.1",
		uses:    []string{"SQE.PollAdd", "SQE.PollMultishot"},
		goldens: pollAddGoldens,
		kernel:  kernelPollAdd,
	})
	ledgerOp(uring.OpPollRemove, row{
		since:   "5.1",
		uses:    []string{"SQE.PollRemove", "SQE.PollUpdate"},
		goldens: pollRemoveGoldens,
		kernel:  kernelPollRemove,
	})
}

var pollAddGoldens = []golden{
	{"add", func(e *uring.SQE) { e.PollAdd(uring.Fd(7), 0x2005) },
		abi.SQE{Opcode: 6, Fd: 7, OpFlags: 0x2005}},
	{"fixed", func(e *uring.SQE) { e.PollAdd(uring.FixedFd(7), pollIn) },
		abi.SQE{Opcode: 6, Flags: 0x01, Fd: 7, OpFlags: 1}},
	{"32 bits", func(e *uring.SQE) { e.PollAdd(uring.Fd(7), 1<<28|pollIn) }, // EPOLLEXCLUSIVE
		abi.SQE{Opcode: 6, Fd: 7, OpFlags: 0x10000001}},
	{"multishot", func(e *uring.SQE) { e.PollMultishot(uring.Fd(7), pollIn) },
		abi.SQE{Opcode: 6, Fd: 7, Len: 1 << 0, OpFlags: 1}},
	{"multishot fixed", func(e *uring.SQE) { e.PollMultishot(uring.FixedFd(0), pollIn|pollOut) },
		abi.SQE{Opcode: 6, Flags: 0x01, Len: 1 << 0, OpFlags: 5}},
}

var pollRemoveGoldens = []golden{
	{"remove", func(e *uring.SQE) { e.PollRemove(0x1122334455667788) },
		abi.SQE{Opcode: 7, Fd: -1, Addr: 0x1122334455667788}},
	{"events", func(e *uring.SQE) { e.PollUpdate(1<<63, pollOut, 1<<63) },
		abi.SQE{Opcode: 7, Fd: -1, Addr: 1 << 63, Off: 1 << 63, Len: 1<<1 | 1<<2, OpFlags: 4}},
	{"several events", func(e *uring.SQE) { e.PollUpdate(5, pollIn|pollPri, 5) },
		abi.SQE{Opcode: 7, Fd: -1, Addr: 5, Off: 5, Len: 1<<1 | 1<<2, OpFlags: 3}},
	{"both", func(e *uring.SQE) { e.PollUpdate(5, 0x12344001, 0x1122334455667788).SetUserData(6) },
		abi.SQE{Opcode: 7, Fd: -1, Addr: 5, Off: 0x1122334455667788, Len: 1<<1 | 1<<2, OpFlags: 0x12344001, UserData: 6}},
}

func kernelPollAdd(t *testing.T) {
	t.Run("one-shot", func(t *testing.T) { ringtest.OverFlavours(t, pollOneShot) })
	t.Run("multishot", func(t *testing.T) { ringtest.OverFlavours(t, pollMultishot) })
	t.Run("overflow", func(t *testing.T) { ringtest.OverFlavours(t, pollOverflow) })
	t.Run("level", func(t *testing.T) {
		// Documented: no kernel so far takes IORING_POLL_ADD_LEVEL.
		ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
			rd, _ := osPipe(t)
			c := ringtest.Do(t, r, func(e *uring.SQE) { e.PollMultishot(fdOf(rd), pollIn).Raw().Len |= 1 << 3 })
			wantErrno(t, c, syscall.EINVAL)
		})
	})
}

func pollOneShot(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	poll := func(fd uring.FD, ev uring.PollEvents) uring.CQE {
		return ringtest.Do(t, r, func(e *uring.SQE) { e.PollAdd(fd, ev) })
	}
	wantRes(t, poll(fdOf(wr), pollIn|pollOut), pollOut)
	wantErrno(t, poll(uring.Fd(unusedFD), pollIn), syscall.EBADF)
	wantErrno(t, poll(uring.FixedFd(0), pollIn), syscall.EBADF)
	registerFiles(t, r, int(rd.Fd()), int(wr.Fd()))
	wantRes(t, poll(uring.FixedFd(1), pollOut), pollOut)

	push(t, r).PollAdd(uring.FixedFd(0), pollIn).SetUserData(7)
	wantQuiet(t, r)
	write(t, wr, "x")
	c := await(t, r, 7)
	wantRes(t, c, pollIn)
	wantMore(t, c, false)

	if err := r.UnregisterFiles(); err != nil { // the table holds the writer open
		t.Fatal(err)
	}
	wr.Close()
	wantRes(t, poll(fdOf(rd), pollIn), pollIn|pollHup) // POLLHUP is reported unrequested
}

func pollMultishot(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	push(t, r).PollMultishot(fdOf(rd), pollIn).SetUserData(7)
	wantQuiet(t, r)
	for range 5 {
		write(t, wr, "x")
		c := await(t, r, 7)
		wantRes(t, c, pollIn)
		wantMore(t, c, true)
		wantQuiet(t, r) // nothing was read: the event persists and is not repeated
	}
	push(t, r).PollRemove(7).SetUserData(8)
	m := byUserData(t, r, 2)
	wantRes(t, m[8], 0)
	wantErrno(t, m[7], syscall.ECANCELED)
	wantMore(t, m[7], false)

	push(t, r).PollMultishot(fdOf(rd), pollIn).SetFlags(uring.SQESkipSuccess)
	wantErrno(t, await(t, r, 0), syscall.EINVAL)
}

// pollOverflow raises more events than the smallest CQ has slots. If that ends the poll,
// its last completion still reports an event.
func pollOverflow(t *testing.T, r *uring.Ring) {
	rd, wr := osPipe(t)
	const events = 6
	push(t, r).PollMultishot(fdOf(rd), pollIn).SetUserData(7)
	runTaskWork(t, r)
	for range events {
		write(t, wr, "x")
		runTaskWork(t, r)
	}
	push(t, r).PollRemove(7).SetUserData(8)
	var last, removed uring.CQE
	reports, ended := 0, false
	for !ended || removed.UserData == 0 {
		c := ringtest.Await(t, r, 1)[0]
		if c.UserData == 8 {
			if removed = c; c.Errno() == syscall.EALREADY { // the completion reports an event
				removed = uring.CQE{}
				push(t, r).PollRemove(7).SetUserData(8)
			}
			continue
		}
		last, ended = c, !c.Has(uring.CQEMore)
		if c.Res == pollIn {
			reports++
		}
	}
	switch {
	case removed.Res == 0:
		wantErrno(t, last, syscall.ECANCELED)
	default: // a full CQ had ended the poll
		wantErrno(t, removed, syscall.ENOENT)
		wantRes(t, last, pollIn)
	}
	// A kernel thread may find several events at once; task work that the test runs after
	// each event finds one.
	if exact := r.SetupFlags()&uring.SetupSQPoll == 0; exact && removed.Res == 0 && reports != events {
		t.Errorf("got %d reports for %d events", reports, events)
	}
}

func kernelPollRemove(t *testing.T) {
	ringtest.OverFlavours(t, func(t *testing.T, r *uring.Ring) {
		rd, wr := osPipe(t)
		push(t, r).PollAdd(fdOf(rd), pollIn).SetUserData(7)
		push(t, r).PollRemove(7).SetUserData(8)
		m := byUserData(t, r, 2)
		wantRes(t, m[8], 0)
		wantErrno(t, m[7], syscall.ECANCELED)
		for name, build := range map[string]func(e *uring.SQE){
			"remove":    func(e *uring.SQE) { e.PollRemove(7) },
			"events":    func(e *uring.SQE) { e.PollUpdate(7, pollIn, 7) },
			"user data": func(e *uring.SQE) { e.PollUpdate(7, pollPri, 8) },
			"both":      func(e *uring.SQE) { e.PollUpdate(7, pollIn, 8) },
		} {
			if c := ringtest.Do(t, r, build); c.Errno() != syscall.ENOENT {
				t.Errorf("%s of a poll that is gone: %+v", name, c)
			}
		}
		pollUpdate(t, r, fdOf(wr))
	})
}

// pollUpdate changes polls on a descriptor that is ready for writing.
func pollUpdate(t *testing.T, r *uring.Ring, fd uring.FD) {
	for _, multishot := range []bool{false, true} {
		if multishot {
			push(t, r).PollMultishot(fd, pollPri).SetUserData(1)
		} else {
			push(t, r).PollAdd(fd, pollPri).SetUserData(1)
		}
		push(t, r).PollUpdate(1, pollPri, 2).SetUserData(3)
		wantRes(t, await(t, r, 3), 0)
		push(t, r).PollUpdate(2, pollOut, 2).SetUserData(4)
		m := byUserData(t, r, 2)
		wantRes(t, m[4], 0)
		wantRes(t, m[2], pollOut)
		wantMore(t, m[2], multishot) // as it was armed
		if multishot {
			push(t, r).PollRemove(2).SetUserData(5)
			wantRes(t, byUserData(t, r, 2)[5], 0)
		}
		if push(t, r).PollAdd(fd, pollPri).SetUserData(1); multishot {
			push(t, r).PollRemove(1).SetUserData(5)
			wantRes(t, byUserData(t, r, 2)[5], 0)
			push(t, r).PollMultishot(fd, pollPri).SetUserData(1)
		}
		push(t, r).PollUpdate(1, pollOut, 2).SetUserData(4)
		m = byUserData(t, r, 2)
		wantRes(t, m[4], 0)
		wantRes(t, m[2], pollOut)
		wantMore(t, m[2], multishot)
	}
	push(t, r).PollRemove(2).SetUserData(5)
	wantRes(t, byUserData(t, r, 2)[5], 0)
}
